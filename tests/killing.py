"""kill -9 at a chosen moment, cheaply: the child is forked from this process, which has imported everything already."""

import os
import signal
import time
import warnings


def killed_after(seconds, work):
    """Run ``work`` in a child and kill it after so many seconds; whether it was still at work then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside idle threads
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
