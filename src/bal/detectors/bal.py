"""Boundary Aware Learning: REM, RSM and RDM for training, p1 * p2 for inference (Algorithm 1)."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from typing_extensions import Self

from bal.backbones import Classifier, as_classifier
from bal.data import Data
from bal.detectors.base import FeatureDetector
from bal.detectors.softmax import log_max_softmax
from bal.discrimination import (
    RADIAL_START,
    Algorithm1,
    Callback,
    CentredDiscriminator,
    ConcatenatingDiscriminator,
    Conditioning,
    Discriminator,
    Ensemble,
    GANTraining,
    Layers,
    PerClassDiscriminator,
    ProgressBar,
    ProjectionDiscriminator,
    RadialDiscriminator,
    RadiusUnit,
    TrainingResult,
    quantile,
)
from bal.errors import BalWarning, SettingsError
from bal.features import (
    Cache,
    EvidenceName,
    Features,
    NormalisationName,
    Step,
    TrivialSampler,
    Uniform,
    class_means,
    evidence_of,
    extract,
    make_normalisation,
)
from bal.sampling import (
    CoordinateShuffle,
    Epsilon,
    Gaussian,
    Generator,
    Interpolation,
    Mixture,
    RandomScaleGaussian,
    hard_pairs,
)
from bal.seeding import make_generator
from bal.settings import MAX_SEED, check_choice, check_choices, check_flags, check_number, check_seed, check_widths

SamplerName = Literal["uniform", "gaussian", "random-scale", "interpolation", "coordinate-shuffle"]


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
        evidence: what D sees of the classifier's evidence for any class at all, as a last coordinate.
        conditioning: how D sees the label.
        radial_start: a and b at the start of the radial D.
        radius: unit of the radius at that start: 1, or the mean, median or 95 % quantile of the ID features' own.
        evidence_start: weight of the evidence at the start of the radial D.
        sampler: source of trivial OOD, a ``SamplerName`` or several joined by "+", which take turns.
        hidden_D: widths of D's hidden layers.
        dropout: share of D's hidden neurons left out in each step of training.
        spectral_norm: D's hidden layers have spectral norm 1.
        hidden_G: widths of G's hidden layers.
        noise_dim: size of z.
        training: settings of Algorithm 1.
        members: D and G are trained so many times, from seeds drawn by ``seed``; p2 is that of their mean logit.
        prior_quantile: D's logit is shifted so that this share of the ID training features lies below 0; None leaves it.
        temperature: D's logit is divided by it, after the shift.
        seed: of every random number.
    """

    log_probability = True

    normalisation: NormalisationName = "l2+whiten"
    evidence: EvidenceName = "energy"
    conditioning: Conditioning = "radial"
    radial_start: tuple[float, float] = RADIAL_START
    radius: RadiusUnit = "median"
    evidence_start: float = 1.0
    sampler: str = "uniform+random-scale"
    hidden_D: tuple[int, ...] = (256, 256)  # noqa: N815 - the paper's letters
    dropout: float = 0.0
    spectral_norm: bool = False
    hidden_G: tuple[int, ...] = (256, 256)  # noqa: N815
    noise_dim: int = 64
    training: GANTraining = field(default_factory=GANTraining)
    members: int = 1
    prior_quantile: float | None = None
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        check_flags(self)
        for part in str(self.sampler).split("+"):
            check_choice("every part of sampler", part, get_args(SamplerName))
        check_widths("hidden_D", self.hidden_D)
        check_widths("hidden_G", self.hidden_G)
        if not isinstance(self.radial_start, tuple) or len(self.radial_start) != 2:
            raise SettingsError(f"radial_start must be a tuple (a, b), for example {RADIAL_START}, got {self.radial_start!r}")
        for start in self.radial_start:
            check_number("radial_start", start, low=0)
        check_number("evidence_start", self.evidence_start, low=0)
        check_number("dropout", self.dropout, low=0, high=0.99)
        check_number("noise_dim", self.noise_dim, low=1, whole=True)
        check_number("members", self.members, low=1, high=100, whole=True)  # a forged file may ask for any number
        check_number("prior_quantile", self.prior_quantile, low=0, high=1, optional=True)
        check_number("temperature", self.temperature, low=1e-3)
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
        return cls(
            normalisation="identity",
            evidence="none",
            conditioning="concatenate",
            sampler="uniform",
            training=training,
            seed=seed,
        )

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
        classifier: Classifier | nn.Module | None = None,
        checkpoint: str | Path | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> Self:
        """Train D and G on features extracted before."""
        path = None if checkpoint is None else Path(checkpoint)
        return self._fit_by(partial(self._fit, checkpoint=path, callbacks=callbacks), features, classifier)

    def _fit(
        self, f: Tensor, logits: Tensor, c: Tensor, *, checkpoint: Path | None = None, callbacks: Iterable[Callback] = ()
    ) -> None:
        self.normalisation_ = self._make_normalisation(f.shape[1])
        raw = self._with_evidence(f, logits)
        f = self.normalisation_.fit(raw, c)(raw)
        train = partial(self._train, f, c, logits.shape[1], callbacks=list(callbacks))
        trainings, results = zip(*(train(seed, member_file(checkpoint, i)) for i, seed in enumerate(self._seeds())), strict=True)
        self.D_, self.G_ = ensemble([training.average for training in trainings]), trainings[0].G
        self.shift_ = self._prior(f, c)
        self.result_: TrainingResult = next((result for result in results if result.status != "finished"), results[0])
        if self.result_.status != "finished":
            warnings.warn(f"BAL {self.result_.status}: {self.result_.message}", BalWarning, stacklevel=5)

    def _train(
        self, f: Tensor, c: Tensor, classes: int, seed: int, checkpoint: Path | None, *, callbacks: list[Callback]
    ) -> tuple[Algorithm1, TrainingResult]:
        """One run of Algorithm 1 on normalised features."""
        generator = make_generator(seed)
        D = self._make_D(class_means(f, c, classes), generator)
        if isinstance(D, RadialDiscriminator):
            D.measure(f, c, self.radius)
        training = Algorithm1(
            D=D,
            G=self._make_G(f.shape[1], classes, generator),
            f=f,
            c=c,
            trivial=make_sampler(self.sampler),
            settings=self.training,
            generator=generator,
        )
        return training, training.run(callbacks=callbacks, checkpoint=checkpoint)

    def _seeds(self) -> list[int]:
        """A seed for each member; the first is our own."""
        others = torch.randint(MAX_SEED, (self.members - 1,), generator=make_generator(self.seed))
        return [self.seed, *others.tolist()]

    @torch.no_grad()
    def _prior(self, f: Tensor, c: Tensor) -> Tensor:
        """The logit of D that takes the place of 0: the quantile of those of normalised ID features, float64."""
        if self.prior_quantile is None:
            return torch.zeros((), dtype=torch.float64)
        logits: Tensor = self.D_(f, c).double()
        return quantile(logits, self.prior_quantile)

    def _build(self, dim: int, classes: int) -> None:
        generator = make_generator(self.seed)
        self.normalisation_ = self._make_normalisation(dim)
        dim += self.normalisation_.added + self._sees_evidence
        self.D_ = ensemble([self._make_D(torch.zeros(classes, dim), generator) for _ in range(self.members)])
        self.G_ = self._make_G(dim, classes, generator)
        self.shift_ = torch.zeros((), dtype=torch.float64)  # of files from before there was one

    def _make_D(self, means: Tensor, generator: torch.Generator) -> Discriminator:  # noqa: N802 - the paper's letters
        """D for normalised features with these class means, (classes, m)."""
        classes, dim = means.shape
        layers: Layers = {
            "hidden": self.hidden_D,
            "generator": generator,
            "dropout": self.dropout,
            "spectral_norm": self.spectral_norm,
        }
        if self.conditioning == "concatenate":
            return ConcatenatingDiscriminator(dim=dim, classes=classes, **layers)
        if self.conditioning == "per-class":
            return PerClassDiscriminator(dim=dim, classes=classes, **layers)
        if self.conditioning == "projection":
            return ProjectionDiscriminator(dim=dim, classes=classes, **layers)
        if self.conditioning == "centred":
            return CentredDiscriminator(means=means, **layers)
        evidence_start = self.evidence_start if self._sees_evidence else None
        return RadialDiscriminator(means=means, start=self.radial_start, evidence_start=evidence_start, **layers)

    def _make_G(self, dim: int, classes: int, generator: torch.Generator) -> Generator:  # noqa: N802
        return Generator(dim=dim, classes=classes, noise_dim=self.noise_dim, hidden=self.hidden_G, generator=generator)

    def _make_normalisation(self, dim: int) -> Step:
        return make_normalisation(self.normalisation, dim, with_evidence=self._sees_evidence)

    @property
    def _sees_evidence(self) -> bool:
        return self.evidence != "none"

    def _with_evidence(self, f: Tensor, logits: Tensor) -> Tensor:
        """Raw features and, where D sees it, the evidence as a last coordinate."""
        return torch.cat([f, evidence_of(self.evidence, f, logits)], 1)

    def normalise(self, f: Tensor, logits: Tensor) -> Tensor:
        """Raw features, (N, m), as D sees them."""
        normalised: Tensor = self.normalisation_(self._with_evidence(f, logits))
        return normalised

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return log_max_softmax(logits) + self.log_p2(f, logits)

    @torch.no_grad()
    def log_p2(self, f: Tensor, logits: Tensor) -> Tensor:
        """The log of p2 = D(f, c-hat) for raw features and the classifier's logits, (N,) float64."""
        return logsigmoid(self.p2_logit(f, logits))

    @torch.no_grad()
    def p2_logit(self, f: Tensor, logits: Tensor) -> Tensor:
        """D's logit for raw features and the predicted class, after the shift and by the temperature, (N,) float64."""
        logit: Tensor = self.D_(self.normalise(f, logits), logits.argmax(1))
        return (logit.double() - self.shift_) / self.temperature

    @torch.no_grad()
    def synthetic(self, features: Features, *, rows: int, seed: int = 0) -> dict[str, Tensor]:
        """ID features and what REM and RSM make beside them, (rows, m) each, in the normalised space where D works.

        ``trivial`` is the sampler's, ``generated`` is G's (of the first member), ``hard`` is what the trained D has pushed.
        """
        usable = features.rows(features.valid)
        generator = make_generator(seed)
        f, c = self.normalise(usable.f, usable.logits), usable.known_labels
        sampler = make_sampler(self.sampler).fit(f, c)
        s, unit = self.training, self.training.epsilon.unit(f, c)
        chosen = torch.randperm(len(f), generator=generator)[:rows]
        f, c = f[chosen], c[chosen]
        z = self.G_.noise(len(f), generator)
        epsilon = s.epsilon.sample(len(f), generator, z.device, unit=unit)
        return {
            "ID": f,
            "trivial": sampler.sample(f, c, classes=usable.logits.shape[1], generator=generator)[0],
            "generated": self.G_(z, c),
            "hard": hard_pairs(self.D_, self.G_, (f, c), (z, c), epsilon, push=s.push, base=s.push_base, steps=s.push_steps)[0],
        }


def ensemble(members: list[nn.Module]) -> nn.Module:
    """One module for all; a single D is its own ensemble."""
    return members[0] if len(members) == 1 else Ensemble(members)


def member_file(checkpoint: Path | None, member: int) -> Path | None:
    """Each member has a checkpoint of its own; the first has the name that was given."""
    return checkpoint.with_name(f"{checkpoint.name}.{member}") if checkpoint and member else checkpoint


def make_sampler(name: str) -> TrivialSampler:
    """A source of trivial OOD by name; a "+" mixes."""
    samplers: dict[str, TrivialSampler] = {
        "uniform": Uniform(),
        "gaussian": Gaussian(),
        "random-scale": RandomScaleGaussian(),
        "interpolation": Interpolation(),
        "coordinate-shuffle": CoordinateShuffle(),
    }
    parts = [samplers[part] for part in name.split("+")]
    return parts[0] if len(parts) == 1 else Mixture(tuple(parts))
