"""Virtual outliers from class Gaussians: the assumption that the BAL paper argues against."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from bal.detectors.base import FeatureDetector
from bal.features import make_normalisation
from bal.networks import mlp
from bal.sampling import Gaussian
from bal.seeding import make_generator, seeded
from bal.settings import check_number, check_seed, check_widths


@dataclass(eq=False)
class VirtualOutliers(FeatureDetector):
    """log sigmoid of a binary network trained on ID features against low-density samples of class Gaussians.

    After VOS (Du et al., ICLR 2022, Eqs. 3 to 5). Departures: the classifier is frozen, so only the binary network learns; it
    reads the standardised feature rather than the energy, which would be one number.
    """

    log_probability = True

    candidates: int = 200
    epochs: int = 5
    batch_size: int = 128
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (128,)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("candidates", "epochs", "batch_size"):
            check_number(name, getattr(self, name), low=1, whole=True)
        check_number("learning_rate", self.learning_rate, low=0)
        check_widths("hidden", self.hidden)
        check_seed(self.seed)

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        generator = make_generator(self.seed)
        with seeded(generator):
            self._build(f.shape[1], logits.shape[1])
        f = self.normalisation_.fit(f, c)(f)
        sampler = Gaussian(self.candidates).fit(f, c)
        optimiser = torch.optim.Adam(self.network_.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(f), generator=generator).split(self.batch_size):
                outliers, _ = sampler.sample(f[rows], c[rows], classes=logits.shape[1], generator=generator)
                known, unknown = self.network_(f[rows]), self.network_(outliers)
                loss = -F.logsigmoid(known).mean() - F.logsigmoid(-unknown).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

    def _build(self, dim: int, classes: int) -> None:
        self.normalisation_ = make_normalisation("standardise", dim)
        self.network_ = mlp(dim, self.hidden, 1)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        logit: Tensor = self.network_(self.normalisation_(f)).squeeze(1)
        return F.logsigmoid(logit.double())
