"""Boundary Aware Learning: REM, RSM and RDM for training, p1 * p2 for inference (Algorithm 1)."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from typing_extensions import Self

from bal.backbones import Classifier
from bal.data import Data
from bal.detectors.base import FeatureDetector, usable_rows
from bal.detectors.softmax import log_max_softmax
from bal.discrimination import (
    Algorithm1,
    Callback,
    ConcatenatingDiscriminator,
    Conditioning,
    GANTraining,
    ProgressBar,
    RadialDiscriminator,
    TrainingResult,
)
from bal.errors import BalWarning
from bal.features import (
    FeatureCache,
    Features,
    NormalisationName,
    TrivialSampler,
    Uniform,
    class_means,
    extract,
    make_normalisation,
)
from bal.sampling import Epsilon, Gaussian, Generator, Mixture, RandomScaleGaussian, hard_features
from bal.seeding import make_generator

SamplerName = Literal["uniform", "gaussian", "random-scale", "uniform+random-scale"]


@dataclass(frozen=True, kw_only=True)
class BALSettings:
    """Everything that decides what BAL learns. The defaults are ours where the paper is silent or its words diverge.

    normalisation: geometry of the features; conditioning: how D sees the label; sampler: source of trivial OOD.
    """

    normalisation: NormalisationName = "l2+whiten"
    conditioning: Conditioning = "radial"
    sampler: SamplerName = "uniform+random-scale"
    hidden_D: tuple[int, ...] = (256, 256)  # noqa: N815 - the paper's letters
    hidden_G: tuple[int, ...] = (256, 256)  # noqa: N815
    noise_dim: int = 64
    training: GANTraining = field(default_factory=GANTraining)
    seed: int = 0


class BAL(FeatureDetector):
    r"""A conditional GAN on penultimate features learns the boundary of the known classes.

    .. math:: S(x) = p_1 \cdot p_2, \qquad p_1, \hat c = H(x; \theta), \qquad p_2 = D(h(x; \theta), \hat c)

    ``score`` is log S = log p1 + log p2 in float64, since both factors saturate at exactly 1 in float32.

    After ``fit``: ``D_`` (the moving average of D), ``G_``, ``normalisation_``, and ``result_`` on how the training ended.
    """

    def __init__(self, settings: BALSettings | None = None) -> None:
        self.settings = settings or BALSettings()

    @classmethod
    def paper(cls, *, seed: int = 0) -> Self:
        """The literal reading of the paper: raw features, one-hot labels, printed losses. Its training diverges."""
        training = GANTraining(
            form="printed", learning_rate_D=1e-3, learning_rate_G=1e-3, decay=0.0, epsilon=Epsilon(absolute=False), anchors=None
        )
        return cls(
            BALSettings(normalisation="identity", conditioning="concatenate", sampler="uniform", training=training, seed=seed)
        )

    def fit(
        self,
        classifier: Classifier,
        data: Data,
        *,
        cache: FeatureCache | None = None,
        show_progress: bool = True,
        checkpoint: Path | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> Self:
        """Extract features of labelled ID data and train D and G on them; the classifier stays as it is.

        With ``checkpoint``, a run that was killed goes on from its last epoch and ends in the same weights.
        """
        features = extract(classifier, data, cache=cache, show_progress=show_progress)
        self.classifier_ = classifier
        watchers = [ProgressBar(), *callbacks] if show_progress else callbacks
        return self.fit_features(features, checkpoint=checkpoint, callbacks=watchers)

    def fit_features(self, features: Features, *, checkpoint: Path | None = None, callbacks: Iterable[Callback] = ()) -> Self:
        """Train D and G on features extracted before."""
        self._checkpoint, self._callbacks = checkpoint, tuple(callbacks)
        return super().fit_features(features)

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        self.normalisation_ = make_normalisation(self.settings.normalisation, f.shape[1]).fit(f, c)
        generator = make_generator(self.settings.seed)
        training = self.make_training(self.normalisation_(f), c, logits.shape[1], generator)
        self.result_: TrainingResult = training.run(callbacks=self._callbacks, checkpoint=self._checkpoint)
        self.D_, self.G_ = training.average, training.G
        if self.result_.status != "finished":
            warnings.warn(f"BAL {self.result_.status}: {self.result_.message}", BalWarning, stacklevel=4)

    def make_training(self, f: Tensor, c: Tensor, classes: int, generator: torch.Generator) -> Algorithm1:
        """Algorithm 1 with fresh networks, on normalised features."""
        s = self.settings
        D = make_discriminator(s, f, c, classes, generator)
        G = Generator(dim=f.shape[1], classes=classes, noise_dim=s.noise_dim, hidden=s.hidden_G, generator=generator)
        return Algorithm1(D=D, G=G, f=f, c=c, trivial=make_sampler(s.sampler), settings=s.training, generator=generator)

    @torch.no_grad()
    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return log_max_softmax(logits) + self.log_p2(f, logits.argmax(1))

    @torch.no_grad()
    def log_p2(self, f: Tensor, c_hat: Tensor) -> Tensor:
        """Log D(f, c-hat) of raw features, (N,) float64."""
        logit: Tensor = self.D_(self.normalisation_(f), c_hat)
        return logsigmoid(logit.double())

    @torch.no_grad()
    def synthetic(self, features: Features, *, rows: int, seed: int = 0) -> dict[str, Tensor]:
        """ID features and what REM and RSM make beside them, (rows, m) each, in the normalised space where D works.

        ``trivial`` is the sampler's, ``generated`` is G's, ``hard`` is G's after the push of the trained D.
        """
        f, logits, c = usable_rows(features)
        generator = make_generator(seed)
        classes = logits.shape[1]
        normalised = self.normalisation_(f)
        chosen = torch.randperm(len(f), generator=generator)[:rows]
        sampler = make_sampler(self.settings.sampler).fit(normalised, c)
        z = self.G_.noise(len(chosen), generator)
        epsilon = self.settings.training.epsilon.sample(len(chosen), generator, z.device)
        return {
            "ID": normalised[chosen],
            "trivial": sampler.sample(normalised[chosen], c[chosen], classes=classes, generator=generator)[0],
            "generated": self.G_(z, c[chosen]),
            "hard": hard_features(self.D_, self.G_, z, c[chosen], epsilon, push=self.settings.training.push),
        }


def make_discriminator(settings: BALSettings, f: Tensor, c: Tensor, classes: int, generator: torch.Generator) -> nn.Module:
    """D as the settings want it, for normalised features f."""
    if settings.conditioning == "concatenate":
        return ConcatenatingDiscriminator(dim=f.shape[1], classes=classes, hidden=settings.hidden_D, generator=generator)
    return RadialDiscriminator(means=class_means(f, c, classes), hidden=settings.hidden_D, generator=generator)


def make_sampler(name: SamplerName) -> TrivialSampler:
    """A source of trivial OOD by name; a "+" mixes."""
    samplers: dict[str, TrivialSampler] = {
        "uniform": Uniform(),
        "gaussian": Gaussian(),
        "random-scale": RandomScaleGaussian(),
    }
    parts = [samplers[part] for part in name.split("+")]
    return parts[0] if len(parts) == 1 else Mixture(*parts)
