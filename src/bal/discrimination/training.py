"""RDM: Algorithm 1 of the paper, the training of D and G on the features of a frozen classifier."""

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from bal.discrimination import losses
from bal.discrimination.callbacks import Callback, Record
from bal.discrimination.checkpoint import load_checkpoint, save_checkpoint
from bal.discrimination.health import (
    LossTerm,
    Status,
    UnhealthyError,
    check_finite,
    check_health,
    check_losses,
    relative_spread,
)
from bal.errors import SettingsError
from bal.features import TrivialSampler, random_labels
from bal.parallel import check_alike, mean_over_ranks, rank, ranks, share
from bal.sampling import Epsilon, Generator, Push, PushBase, hard_pairs
from bal.seeding import seeded
from bal.settings import check_choices, check_number
from bal.storage import digest


@dataclass(frozen=True, kw_only=True)
class GANTraining:
    """Settings of Algorithm 1; ``lambda_c``, ``lambda_`` and the terms are the paper's, it gives no others.

    epochs: 0 leaves D at its start. iterations: M of Algorithm 1, the batches of an epoch at most, so that a large data set takes
    no more steps than a small one; None takes every row once. terms: the parts of L_d, for the ablation of Table 3. decay: of the
    moving average of D's weights. anchors: ID features of each class that stand for M_c in L_g; None takes all.

    Beyond the paper, and without effect by default. fake_weight: of G's own samples in L_t. warm_up: share of all steps over
    which that weight rises from 0. push_base: what hard OOD is pushed from. push_steps: steps that the push takes over its length
    epsilon. hard_share: share of hard OOD among the negatives of L_u, by weight. r1: weight of the R1 penalty beside L_d.
    """

    epochs: int = 8
    iterations: int | None = 40
    batch_size: int = 256
    learning_rate_D: float = 3e-5  # noqa: N815 - the paper's letters
    learning_rate_G: float = 1e-3  # noqa: N815
    lambda_c: float = 0.7
    lambda_: float = 0.01
    form: losses.Form = "bounded"
    terms: tuple[LossTerm, ...] = ("t", "s", "u")
    push: Push = "sign"
    epsilon: Epsilon = field(default_factory=Epsilon)
    decay: float = 0.999
    anchors: int | None = 128
    fake_weight: float = 1.0
    warm_up: float = 0.0
    push_base: PushBase = "generated"
    push_steps: int = 1
    hard_share: float = 0.5
    r1: float = 0.0

    def __post_init__(self) -> None:
        check_choices(self)
        check_number("epochs", self.epochs, low=0, whole=True)
        check_number("batch_size", self.batch_size, low=2, whole=True)
        for name in ("learning_rate_D", "learning_rate_G", "lambda_c", "lambda_", "fake_weight", "r1"):
            check_number(name, getattr(self, name), low=0)
        for name in ("decay", "warm_up", "hard_share"):
            check_number(name, getattr(self, name), low=0, high=1)
        check_number("push_steps", self.push_steps, low=1, whole=True)
        for name in ("anchors", "iterations"):
            check_number(name, getattr(self, name), low=1, whole=True, optional=True)
        if self.push == "noise" and (self.push_base == "real" or self.epsilon.relative):
            raise SettingsError(
                'push="noise" moves the noise of G, which no real feature has and whose spread is 1; take push_base="generated" '
                'and an epsilon that is not relative, or push="sign"'
            )


@dataclass(frozen=True)
class TrainingResult:
    """How the training ended. ``history`` has one record for each healthy epoch."""

    status: Status
    message: str
    epochs: int
    history: list[Record]


class Algorithm1:
    """Adversarial training of D and G on ID pairs <f, c>.

    f: (N, m) normalised ID features, c: (N,) their labels. ``D`` and ``G`` are changed in place; ``average`` is the moving
    average of D, the one to use for inference. Every random number comes from ``generator``.

    Inside :func:`bal.parallel.process_group`, as under torchrun, each rank computes on its share of every batch; the batch size
    stays that of the whole.
    """

    def __init__(
        self,
        *,
        D: nn.Module,
        G: Generator,
        f: Tensor,
        c: Tensor,
        trivial: TrivialSampler,
        settings: GANTraining,
        generator: torch.Generator,
    ) -> None:
        self.D, self.G, self.average = D.eval(), G, copy.deepcopy(D).eval().requires_grad_(False)
        self.f, self.c, self.classes = f, c, G.classes
        self.trivial = trivial.fit(f, c)
        self.settings, self.generator = settings, generator
        self.epsilon_unit = settings.epsilon.unit(f, c)
        self.optimiser_D = torch.optim.Adam(D.parameters(), betas=(0.5, 0.999))
        self.optimiser_G = torch.optim.Adam(G.parameters(), betas=(0.5, 0.999))
        self.batch_size = min(settings.batch_size, len(f)) // ranks() * ranks()
        if self.batch_size < ranks():
            raise SettingsError(f"{len(f)} rows in batches of {settings.batch_size} are too few for {ranks()} ranks; take fewer")
        self.iterations = min(len(f) // self.batch_size, settings.iterations or len(f))  # the ragged end of an epoch is left out
        self.step = 0
        self.first_losses: Record = {}
        self.history: list[Record] = []
        start = {"f": f, "c": c, "seed": generator.get_state(), **self.weights()}  # networks of other sizes have other weights
        self.run_id = digest(start, {**asdict(settings), "D": repr(D), "trivial": repr(trivial)})
        self.anchors, self.anchor_labels = self._draw_anchors()

    def run(self, *, callbacks: Iterable[Callback] = (), checkpoint: Path | None = None) -> TrainingResult:
        """Train, or go on from ``checkpoint`` where a killed run left it; the final weights are the same either way."""
        check_alike(self.run_id)
        callbacks = list(callbacks) if rank() == 0 else []
        if checkpoint is not None and checkpoint.exists():
            load_checkpoint(checkpoint, self)
        for callback in callbacks:
            callback.on_start(self.history, self.settings.epochs, self.iterations)
        result = None
        try:
            with torch.enable_grad():
                result = self._train(callbacks, checkpoint)
            return result
        finally:
            status, message = (result.status, result.message) if result else ("interrupted", f"after {len(self.history)} epochs")
            for callback in callbacks:
                callback.on_end(status, message)

    def _train(self, callbacks: list[Callback], checkpoint: Path | None) -> TrainingResult:
        healthy = self.weights()
        try:
            for epoch in range(len(self.history), self.settings.epochs):
                record = self._epoch(epoch, callbacks)
                check_health(record, self.settings.terms, self.history, last=epoch + 1 == self.settings.epochs)
                weights = self.weights()
                check_finite(weights)
                healthy = weights
                self.history.append(record)
                if checkpoint is not None and rank() == 0:
                    save_checkpoint(checkpoint, self)
                for callback in callbacks:
                    callback.on_epoch(record)
        except UnhealthyError as stop:
            self.load_weights(healthy)  # the best state known without OOD data: the last healthy one
            kept = f"epoch {len(self.history)}" if self.history else "the start"
            message = f"{stop}; stopped in epoch {len(self.history) + 1} and went back to the weights of {kept}"
            return TrainingResult(stop.status, message, len(self.history), self.history)
        return TrainingResult("finished", f"all {len(self.history)} epochs done", len(self.history), self.history)

    def _epoch(self, epoch: int, callbacks: list[Callback]) -> Record:
        sums: Record = {}
        order = torch.randperm(len(self.f), generator=self.generator)
        for rows in order[: self.iterations * self.batch_size].split(self.batch_size):
            f, c = self.f[rows], self.c[rows]
            terms = over_ranks(self.discriminator_step(f, c) | self.generator_step(len(f)))
            check_losses(terms, self.first_losses)
            for name, value in terms.items():
                sums[name] = sums.get(name, 0.0) + value / self.iterations
            for callback in callbacks:
                callback.on_step(terms)
        return {"epoch": epoch + 1, **sums}

    def discriminator_step(self, f: Tensor, c: Tensor) -> Record:
        """Lines 3 to 10 of Algorithm 1: one update of D; G is not touched."""
        s = self.settings
        c_shuffled = losses.shuffle_labels(c, self.classes, self.generator)
        f_trivial, c_trivial = self.trivial.sample(f, c, classes=self.classes, generator=self.generator)
        z, c_z = self._noise(len(f))
        epsilon = s.epsilon.sample(len(f), self.generator, f.device, unit=self.epsilon_unit)
        own = share(len(f))  # all rows, but under torchrun
        f, c, c_shuffled, f_trivial, c_trivial, z, c_z, epsilon = (
            rows[own] for rows in (f, c, c_shuffled, f_trivial, c_trivial, z, c_z, epsilon)
        )
        with torch.no_grad():
            f_fake = self.G(z, c_z)
        hard_ood = hard_pairs(self.D, self.G, (f, c), (z, c_z), epsilon, push=s.push, base=s.push_base, steps=s.push_steps)

        pairs = [(f, c), (f, c_shuffled), (f_fake, c_z), (f_trivial, c_trivial), hard_ood]
        with self._learning():
            logits: Tensor = self.D(torch.cat([f for f, _ in pairs]), torch.cat([c for _, c in pairs]))
        positive, shuffled, fake, trivial, hard = logits.split(len(f))
        zero = logits.new_zeros(())
        fake_weight = s.fake_weight * losses.warmed(self.done, s.warm_up)
        L_t = losses.vanilla_loss(positive, fake, fake_weight=fake_weight) if "t" in s.terms else zero
        L_s = losses.shuffle_loss(positive, shuffled, form=s.form) if "s" in s.terms else zero
        ood, weight = torch.cat([trivial, hard]), losses.share_weights(trivial, hard, s.hard_share)
        L_u = losses.uniform_loss(positive, ood, lambda_c=s.lambda_c, form=s.form, weight=weight) if "u" in s.terms else zero
        L_d = losses.discriminator_loss(L_t, L_s, L_u)
        if s.r1:
            L_d = L_d + s.r1 * losses.gradient_penalty(self.D, f, c)
        self._update(self.optimiser_D, L_d, s.learning_rate_D)
        self._follow()
        return {
            "L_d": L_d.item(),
            "L_t": L_t.item(),
            "L_s": L_s.item(),
            "L_u": L_u.item(),
            "D_id": positive.detach().sigmoid().mean().item(),
            "D_shuffled": shuffled.detach().sigmoid().mean().item(),
            "D_fake": fake.detach().sigmoid().mean().item(),
            "D_trivial": trivial.detach().sigmoid().mean().item(),
            "D_hard": hard.detach().sigmoid().mean().item(),
            "spread": relative_spread(f_fake, c_z, f, c),
        }

    def generator_step(self, rows: int) -> Record:
        """Lines 11 to 15 of Algorithm 1: one update of G; D is not touched."""
        z, c = (drawn[share(rows)] for drawn in self._noise(rows))
        fake = self.G(z, c)
        distance = losses.nearest_l1(fake, c, self.anchors, self.anchor_labels)
        L_g = losses.generator_loss(self.D(fake, c), distance, lambda_=self.settings.lambda_, form=self.settings.form)
        self._update(self.optimiser_G, L_g, self.settings.learning_rate_G)
        self.step += 1
        return {"L_g": L_g.item(), "distance": distance.item()}

    def weights(self) -> dict[str, Tensor]:
        """A copy of all weights of D, its average and G."""
        return {
            f"{part}.{name}": tensor.clone()
            for part, module in self._modules().items()
            for name, tensor in module.state_dict().items()
        }

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Put back what :meth:`weights` gave."""
        for part, module in self._modules().items():
            module.load_state_dict(
                {name.removeprefix(f"{part}."): tensor for name, tensor in weights.items() if name.startswith(f"{part}.")}
            )

    def _modules(self) -> dict[str, nn.Module]:
        return {"D": self.D, "average": self.average, "G": self.G}

    @property
    def done(self) -> float:
        """The share of all steps that is behind us."""
        return self.step / (self.settings.epochs * self.iterations)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """D with dropout, drawn from our own generator, and with spectral norms that follow the weights; elsewhere D is fixed."""
        random = any(isinstance(module, nn.Dropout) for module in self.D.modules())
        self.D.train()
        with seeded(self.generator) if random else nullcontext():
            yield
        self.D.eval()

    def _noise(self, rows: int) -> tuple[Tensor, Tensor]:
        """Z ~ P_z and random conditional labels."""
        z = self.G.noise(rows, self.generator)
        return z, random_labels(rows, self.classes, self.generator, z.device)

    def _update(self, optimiser: torch.optim.Optimizer, loss: Tensor, learning_rate: float) -> None:
        """Gradient descent on the optimiser's own parameters alone; the rate falls along a half cosine."""
        parameters = optimiser.param_groups[0]["params"]
        gradients = mean_over_ranks(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimiser.param_groups[0]["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * self.done))
        optimiser.step()
        optimiser.zero_grad()

    def _follow(self) -> None:
        """Move the average towards D; a short memory at first, so that it does not cling to the start."""
        decay = min(self.settings.decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for average, weight in zip(self.average.parameters(), self.D.parameters(), strict=True):
                average.lerp_(weight, 1 - decay)
            for copied, buffer in zip(self.average.buffers(), self.D.buffers(), strict=True):
                copied.copy_(buffer)  # the directions of spectral norms

    def _draw_anchors(self) -> tuple[Tensor, Tensor]:
        """The features of each class that stand for M_c in L_g."""
        if self.settings.anchors is None:
            return self.f, self.c
        order = torch.randperm(len(self.c), generator=self.generator)
        labels = self.c.cpu()[order]
        rows = torch.cat([order[labels == label][: self.settings.anchors] for label in range(self.classes)])
        return self.f[rows], self.c[rows]


def over_ranks(terms: Record) -> Record:
    """The mean of every term over all ranks."""
    if ranks() == 1:
        return terms
    means = mean_over_ranks([torch.tensor(list(terms.values()), dtype=torch.float64)])[0]
    return dict(zip(terms, means.tolist(), strict=True))
