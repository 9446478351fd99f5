"""A pickle that does something, to show that nobody unpickles it (fault 10)."""

import os


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)
