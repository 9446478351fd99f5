"""What may watch a training: a progress bar, a log file."""

import json
from contextlib import ExitStack
from pathlib import Path

from bal.progress import Advance, progress_bar
from bal.storage import write_atomically

Record = dict[str, float]  # means over one epoch (or values of one step) of the losses and of D


class Callback:
    """Called by the training loop; every method may be left out."""

    def on_start(self, history: list[Record], epochs: int, iterations: int) -> None:
        """Before the first step; ``history`` is not empty when a killed run goes on."""

    def on_step(self, terms: Record) -> None:
        """After each pair of D and G steps."""

    def on_epoch(self, record: Record) -> None:
        """After each healthy epoch, when its checkpoint is on disk."""

    def on_end(self, status: str, message: str) -> None:
        """After the last step, however it came."""


class ProgressBar(Callback):
    """A rich bar over all steps."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._advance: Advance | None = None

    def on_start(self, history: list[Record], epochs: int, iterations: int) -> None:
        """Show the bar, as far along as the history is."""
        self._advance = self._stack.enter_context(progress_bar("BAL", epochs * iterations))
        self._advance(len(history) * iterations)

    def on_step(self, terms: Record) -> None:
        """One step on."""
        if self._advance is not None:
            self._advance(note=f"L_d {terms['L_d']:.3f}  L_g {terms['L_g']:.3f}")

    def on_end(self, status: str, message: str) -> None:
        """Take the bar away."""
        self._stack.close()


class JsonLines(Callback):
    """One JSON object for each epoch, and one for the end. After a resume the file holds each epoch once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_start(self, history: list[Record], epochs: int, iterations: int) -> None:
        """Write the epochs known so far; whatever a killed run wrote after its checkpoint goes."""
        write_atomically(self.path, "".join(json.dumps(record) + "\n" for record in history).encode())

    def on_epoch(self, record: Record) -> None:
        """Add one epoch."""
        self._append(record)

    def on_end(self, status: str, message: str) -> None:
        """Add how it ended."""
        self._append({"status": status, "message": message})

    def _append(self, row: Record | dict[str, str]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
