"""Boundary Aware Learning: REM, RSM and RDM for training, p1 * p2 for inference (Algorithm 1)."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from typing_extensions import Self

from bal.backbones import Classifier, as_classifier
from bal.data import Data
from bal.detectors.base import FeatureDetector
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
    Cache,
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
from bal.settings import check_choices, check_number, check_seed, check_widths

SamplerName = Literal["uniform", "gaussian", "random-scale", "uniform+random-scale"]


@dataclass(eq=False, kw_only=True)
class BAL(FeatureDetector):
    r"""A conditional GAN on penultimate features learns the boundary of the known classes.

    .. math:: S(x) = p_1 \cdot p_2, \qquad p_1, \hat c = H(x; \theta), \qquad p_2 = D(h(x; \theta), \hat c)

    ``score`` is log S = log p1 + log p2 in float64, since both factors saturate at exactly 1 in float32.

    The defaults are ours where the paper is silent or its words diverge (``docs/equations.md``); :meth:`paper` is the literal
    reading.
    After ``fit``: ``D_`` (the moving average of D), ``G_``, ``normalisation_``, and ``result_`` on how the training ended.

    Args:
        normalisation: geometry of the features.
        conditioning: how D sees the label.
        sampler: source of trivial OOD.
        hidden_D: widths of D's hidden layers.
        hidden_G: widths of G's hidden layers.
        noise_dim: size of z.
        training: settings of Algorithm 1.
        seed: of every random number.
    """

    log_probability = True

    normalisation: NormalisationName = "l2+whiten"
    conditioning: Conditioning = "radial"
    sampler: SamplerName = "uniform+random-scale"
    hidden_D: tuple[int, ...] = (256, 256)  # noqa: N815 - the paper's letters
    hidden_G: tuple[int, ...] = (256, 256)  # noqa: N815
    noise_dim: int = 64
    training: GANTraining = field(default_factory=GANTraining)
    seed: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        check_widths("hidden_D", self.hidden_D)
        check_widths("hidden_G", self.hidden_G)
        check_number("noise_dim", self.noise_dim, low=1, whole=True)
        check_seed(self.seed)

    @classmethod
    def paper(cls, *, seed: int = 0) -> Self:
        """The literal reading of the paper: raw features, one-hot labels, printed losses; it diverges, given enough steps."""
        training = GANTraining(
            iterations=None,
            form="printed",
            learning_rate_D=1e-3,
            learning_rate_G=1e-3,
            decay=0.0,
            epsilon=Epsilon(absolute=False),
            anchors=None,
        )
        return cls(normalisation="identity", conditioning="concatenate", sampler="uniform", training=training, seed=seed)

    def fit(
        self,
        classifier: Classifier | nn.Module,
        data: Data,
        *,
        cache: Cache | None = None,
        show_progress: bool = True,
        checkpoint: str | Path | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> Self:
        """Extract features of labelled ID data and train D and G on them; the classifier stays as it is.

        With ``checkpoint``, a run that was killed goes on from its last epoch and ends in the same weights.
        """
        classifier = as_classifier(classifier)
        features = extract(classifier, data, cache=cache, show_progress=show_progress)
        watchers = [ProgressBar(), *callbacks] if show_progress else callbacks
        return self.fit_features(features, classifier=classifier, checkpoint=checkpoint, callbacks=watchers)

    def fit_features(
        self,
        features: Features,
        *,
        classifier: Classifier | None = None,
        checkpoint: str | Path | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> Self:
        """Train D and G on features extracted before."""
        path = None if checkpoint is None else Path(checkpoint)
        return self._fit_by(partial(self._fit, checkpoint=path, callbacks=callbacks), features, classifier)

    def _fit(
        self, f: Tensor, logits: Tensor, c: Tensor, *, checkpoint: Path | None = None, callbacks: Iterable[Callback] = ()
    ) -> None:
        dim, classes = f.shape[1], logits.shape[1]
        generator = make_generator(self.seed)
        self.normalisation_ = make_normalisation(self.normalisation, dim).fit(f, c)
        f = self.normalisation_(f)
        training = Algorithm1(
            D=self._make_D(class_means(f, c, classes), generator),
            G=self._make_G(dim, classes, generator),
            f=f,
            c=c,
            trivial=make_sampler(self.sampler),
            settings=self.training,
            generator=generator,
        )
        self.result_: TrainingResult = training.run(callbacks=callbacks, checkpoint=checkpoint)
        self.D_, self.G_ = training.average, training.G
        if self.result_.status != "finished":
            warnings.warn(f"BAL {self.result_.status}: {self.result_.message}", BalWarning, stacklevel=5)

    def _build(self, dim: int, classes: int) -> None:
        generator = make_generator(self.seed)
        self.normalisation_ = make_normalisation(self.normalisation, dim)
        self.D_ = self._make_D(torch.zeros(classes, dim), generator)
        self.G_ = self._make_G(dim, classes, generator)

    def _make_D(self, means: Tensor, generator: torch.Generator) -> nn.Module:  # noqa: N802 - the paper's letters
        """D for normalised features with these class means, (classes, m)."""
        classes, dim = means.shape
        if self.conditioning == "concatenate":
            return ConcatenatingDiscriminator(dim=dim, classes=classes, hidden=self.hidden_D, generator=generator)
        return RadialDiscriminator(means=means, hidden=self.hidden_D, generator=generator)

    def _make_G(self, dim: int, classes: int, generator: torch.Generator) -> Generator:  # noqa: N802
        return Generator(dim=dim, classes=classes, noise_dim=self.noise_dim, hidden=self.hidden_G, generator=generator)

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return log_max_softmax(logits) + self.log_p2(f, logits.argmax(1))

    @torch.no_grad()
    def log_p2(self, f: Tensor, c_hat: Tensor) -> Tensor:
        """The log of p2 = D(f, c-hat) for raw features, (N,) float64."""
        logit: Tensor = self.D_(self.normalisation_(f), c_hat)
        return logsigmoid(logit.double())

    @torch.no_grad()
    def synthetic(self, features: Features, *, rows: int, seed: int = 0) -> dict[str, Tensor]:
        """ID features and what REM and RSM make beside them, (rows, m) each, in the normalised space where D works.

        ``trivial`` is the sampler's, ``generated`` is G's, ``hard`` is G's after the push of the trained D.
        """
        usable = features.rows(features.valid)
        generator = make_generator(seed)
        f, c = self.normalisation_(usable.f), usable.known_labels
        sampler = make_sampler(self.sampler).fit(f, c)
        chosen = torch.randperm(len(f), generator=generator)[:rows]
        f, c = f[chosen], c[chosen]
        z = self.G_.noise(len(f), generator)
        epsilon = self.training.epsilon.sample(len(f), generator, z.device)
        return {
            "ID": f,
            "trivial": sampler.sample(f, c, classes=usable.logits.shape[1], generator=generator)[0],
            "generated": self.G_(z, c),
            "hard": hard_features(self.D_, self.G_, z, c, epsilon, push=self.training.push),
        }


def make_sampler(name: SamplerName) -> TrivialSampler:
    """A source of trivial OOD by name; a "+" mixes."""
    samplers: dict[str, TrivialSampler] = {
        "uniform": Uniform(),
        "gaussian": Gaussian(),
        "random-scale": RandomScaleGaussian(),
    }
    parts = [samplers[part] for part in name.split("+")]
    return parts[0] if len(parts) == 1 else Mixture(tuple(parts))
