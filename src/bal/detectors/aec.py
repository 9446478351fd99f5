"""AEC: what an auto-encoder of ID images cannot rebuild is less to be trusted."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from bal.detectors.base import InputDetector
from bal.detectors.softmax import log_max_softmax
from bal.errors import ShapeError
from bal.networks import mlp
from bal.progress import progress_bar
from bal.seeding import make_generator, seeded
from bal.settings import check_number, check_seed, check_widths

GREY_LEVELS = 255.0


@dataclass(eq=False)
class AEC(InputDetector):
    r"""log p1 - strength * error of an auto-encoder trained on ID inputs (taken to be Denouden et al., 2018).

    .. math:: S = p_1 \exp(-0.1 \, \mathrm{mean} |x - x'|)

    The factor is that of the BAL authors' toy. Departures: the error is counted in grey levels (255 to the unit of a pixel),
    since 0.1 has no effect on errors of pixels in [0, 1]; the auto-encoder is fully connected, so that it takes any input size.
    """

    log_probability = True

    strength: float = 0.1
    hidden: tuple[int, ...] = (256,)
    code: int = 32
    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("strength", "learning_rate"):
            check_number(name, getattr(self, name), low=0)
        for name in ("code", "epochs", "batch_size"):
            check_number(name, getattr(self, name), low=1, whole=True)
        check_widths("hidden", self.hidden)
        check_seed(self.seed)

    def _fit(self, x: Tensor, c: Tensor, *, show_progress: bool) -> None:
        if not x.is_floating_point():
            raise ShapeError(f"AEC rebuilds pixels or other real inputs, got {x.dtype}; use another detector for token ids")
        generator = make_generator(self.seed)
        with seeded(generator):
            self._build(0, 0)
        optimiser = torch.optim.Adam(self.autoencoder_.parameters(), lr=self.learning_rate)
        batches = -(-len(x) // self.batch_size)
        with progress_bar("auto-encoder", self.epochs * batches, show=show_progress) as advance:
            for _ in range(self.epochs):
                for rows in torch.randperm(len(x), generator=generator).split(self.batch_size):
                    loss = self.error(x[rows]).mean()
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    advance(note=f"error {loss.item():.2f}")

    def _build(self, dim: int, classes: int) -> None:
        pixels = int(np.prod(self.spec_.shape)) if self.spec_ is not None else 0
        self.autoencoder_ = nn.Sequential(
            mlp(pixels, self.hidden, self.code), nn.LeakyReLU(0.2), mlp(self.code, self.hidden[::-1], pixels)
        )

    def error(self, x: Tensor) -> Tensor:
        """Mean |x - x'| of each input in grey levels, (N,)."""
        flat = x.flatten(1).cpu().float()
        difference: Tensor = self.autoencoder_(flat) - flat
        return GREY_LEVELS * difference.abs().mean(1)

    def _score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.classifier_(x)[1]
        with torch.no_grad():
            error = self.error(x).double()
        return log_max_softmax(logits.cpu()) - self.strength * error, logits.argmax(1)
