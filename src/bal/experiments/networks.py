"""The classifiers behind the tables and figures: loaded, trained here once and kept, or new layers on a frozen body.

A network also says what its inputs are: images, or the features of its body. So a head that is trained in seconds on cached
features is measured by the same code as a whole ResNet.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from bal.backbones import Classifier, ClassifierTraining, ResNet18, train_classifier
from bal.backbones.resnet import Stem
from bal.data import Data
from bal.data.catalog import Split, load_data_set
from bal.errors import StorageError
from bal.experiments.checkpoints import CHECKPOINTS, load_checkpoint
from bal.features import FeatureCache, Features, extract
from bal.seeding import make_generator
from bal.storage import load_tensors, save_tensors

PresetName = Literal["cpu", "paper"]


@dataclass(frozen=True)
class Store:
    """The folder of a reproduction: trained networks, cached features, finished cells, figures and pages."""

    folder: Path
    preset: PresetName = "cpu"
    show_progress: bool = True

    @property
    def cache(self) -> FeatureCache:
        """Features of every network and data set."""
        return FeatureCache(self.folder / "features")

    def extract(self, classifier: Classifier, data: Data) -> Features:
        """Features from the cache, or made now."""
        return extract(classifier, data, cache=self.cache, show_progress=self.show_progress)


class Network(Protocol):
    """A classifier of the tables: what identifies it, how to get it, and its data."""

    @property
    def data(self) -> str:
        """The data set it knows."""
        ...

    def recipe(self, preset: PresetName) -> dict[str, Any]:
        """All that its weights depend on."""
        ...

    def classifier(self, store: Store) -> Classifier:
        """The trained classifier."""
        ...

    def inputs(self, store: Store, name: str, split: Split) -> tuple[Any, Any]:
        """What it takes in of a data set, and the labels."""
        ...


def kept(store: Store, name: str, model: nn.Module, recipe: dict[str, Any]) -> bool:
    """Put the weights of an earlier run with this recipe into the model, if there are some."""
    try:
        weights, saved = load_tensors(network_path(store, name))
    except StorageError:
        return False
    if saved != recipe:
        return False
    model.load_state_dict(weights)
    model.eval()
    return True


def network_path(store: Store, name: str) -> Path:
    """Where the weights of a network that is trained here are."""
    return store.folder / "networks" / f"{store.preset}-{name}.safetensors"


@dataclass(frozen=True)
class Pretrained:
    """A checkpoint of others, as it is."""

    name: str

    @property
    def data(self) -> str:
        """The data set it knows."""
        return CHECKPOINTS[self.name].data

    def recipe(self, preset: PresetName) -> dict[str, Any]:
        """Only its name: the cells keep the fingerprint of its weights."""
        return {"checkpoint": self.name}

    def classifier(self, store: Store) -> Classifier:
        """The checkpoint, from BAL_WEIGHTS."""
        return load_checkpoint(self.name)

    def inputs(self, store: Store, name: str, split: Split) -> tuple[Any, Any]:
        """Images and labels."""
        return load_data_set(name, split)


@dataclass(frozen=True)
class Trained:
    """A ResNet18 trained here from scratch with Adam and cross-entropy, as in Sec. 5.3.

    The paper's preset has 300 epochs at full width and resolution; ``cpu`` takes ``epochs``, ``batch_size``, ``width`` and a 7x7
    stem.
    """

    data: str
    epochs: int
    batch_size: int = 256
    width: int = 64
    penultimate: int | None = None
    seed: int = 0

    def recipe(self, preset: PresetName) -> dict[str, Any]:
        """Architecture, data, training and seed."""
        stem: Stem = "7x7" if preset == "cpu" else "3x3"
        width, epochs, batch_size = (self.width, self.epochs, self.batch_size) if preset == "cpu" else (64, 300, 128)
        training = ClassifierTraining(epochs=epochs, batch_size=batch_size)
        return {
            "network": "ResNet18",
            "data": self.data,
            "width": width,
            "stem": stem,
            "penultimate": self.penultimate,
            "seed": self.seed,
            "training": asdict(training),
        }

    def classifier(self, store: Store) -> Classifier:
        """Trained now, or by an earlier run."""
        recipe = self.recipe(store.preset)
        generator = make_generator(self.seed)
        model = ResNet18(width=recipe["width"], stem=recipe["stem"], penultimate=self.penultimate, generator=generator)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        name = f"{self.data}-{self.penultimate or 'full'}"
        if not kept(store, name, model, recipe):
            training = ClassifierTraining(**recipe["training"])
            images = load_data_set(self.data, "train")
            train_classifier(model, images, training, generator=generator, show_progress=store.show_progress)
            save_tensors(network_path(store, name), model.state_dict(), recipe)
        return Classifier(model)

    def inputs(self, store: Store, name: str, split: Split) -> tuple[Any, Any]:
        """Images and labels."""
        return load_data_set(name, split)


@dataclass(frozen=True)
class OnFeatures:
    """New last layers on the features of a frozen body, trained here in seconds; its inputs are the body's features.

    penultimate: neurons of the new penultimate layer, after a hidden one of 1,024; None puts the head right on the features.
    classes: keep only these classes of the body's data set, renumbered from 0; None keeps all, and without a new penultimate
    layer the body's own head.
    """

    body: Network
    name: str
    penultimate: int | None = None
    classes: tuple[int, ...] | None = None
    seed: int = 0
    training: ClassifierTraining = field(default_factory=lambda: ClassifierTraining(epochs=10, batch_size=256))

    @property
    def data(self) -> str:
        """The data set of the body."""
        return self.body.data

    def recipe(self, preset: PresetName) -> dict[str, Any]:
        """The body's, and what stands on it."""
        own = {"penultimate": self.penultimate, "classes": self.classes and list(self.classes), "seed": self.seed}
        return {"body": self.body.recipe(preset), **own, "training": asdict(self.training)}

    def classifier(self, store: Store) -> Classifier:
        """The layers alone."""
        body = self.body.classifier(store)
        if self.penultimate is None and self.classes is None:
            return Classifier(nn.Sequential(body.head))
        generator = make_generator(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)  # the CPU's alone; torch.manual_seed would reseed every GPU
            model = self._layers(body.dim, body.classes if self.classes is None else len(self.classes))
        recipe = self.recipe(store.preset)
        if not kept(store, self.name, model, recipe):
            x, c = self.inputs(store, self.data, "train")
            train_classifier(model, (x, c), self.training, generator=generator, show_progress=store.show_progress)
            save_tensors(network_path(store, self.name), model.state_dict(), recipe)
        return Classifier(model)

    def _layers(self, dim: int, classes: int) -> nn.Sequential:
        if self.penultimate is None:
            return nn.Sequential(nn.Linear(dim, classes))
        neck = (nn.Linear(dim, 1024), nn.ReLU(), nn.Linear(1024, self.penultimate))
        return nn.Sequential(*neck, nn.Linear(self.penultimate, classes))

    def inputs(self, store: Store, name: str, split: Split) -> tuple[Tensor, Tensor]:
        """The body's features and the labels; of its own data set only the rows of its classes."""
        x, c = self.body.inputs(store, name, split)
        images = (x, c) if name == self.data else x  # as the tables ask for them, so that both find the same cache
        f, labels = store.extract(self.body.classifier(store), images).f, torch.as_tensor(c)
        if self.classes is None or name != self.data:
            return f, labels
        wanted = torch.tensor(self.classes)
        rows = torch.isin(labels, wanted)
        return f[rows], torch.searchsorted(wanted, labels[rows])


FEATURE_SIZES = (2, 64, 256, 512, 1024)  # of Table 5
PRETRAINED: dict[str, Network] = {name: Pretrained(name) for name in CHECKPOINTS}
NETWORKS: Mapping[str, Network] = {
    **PRETRAINED,
    "resnet18-mnist": Trained("mnist", epochs=3),
    "resnet18-fashion-mnist": Trained("fashion-mnist", epochs=5, batch_size=128),
    "resnet18-mnist-2": Trained("mnist", epochs=4, width=16, penultimate=2),
    "resnet18-mnist-3": Trained("mnist", epochs=4, width=16, penultimate=3),
    **{
        f"densenet-cifar10-{size}": OnFeatures(PRETRAINED["densenet-cifar10"], f"densenet-cifar10-{size}", penultimate=size)
        for size in FEATURE_SIZES
    },
    "cats-and-dogs": OnFeatures(PRETRAINED["densenet-cifar10"], "cats-and-dogs", classes=(3, 5)),
}


def find_network(name: str) -> Network:
    """The network of that name; "NAME/features" is its head alone, whose inputs are its features."""
    base, _, part = name.partition("/")
    return OnFeatures(NETWORKS[base], base) if part else NETWORKS[base]
