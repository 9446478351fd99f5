"""What the paper's figures show, as arrays: computed once, kept in the store, drawn by ``bal.report``."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from bal.backbones import Classifier, ClassifierTraining, train_classifier
from bal.data.catalog import find_data_set, load_data_set
from bal.detectors import BAL, log_max_softmax
from bal.detectors.rows import some_rows
from bal.discrimination import GANTraining
from bal.errors import StorageError
from bal.experiments.cells import part_of, some_of
from bal.experiments.networks import NETWORKS, Network, Store
from bal.features import Features, extract
from bal.seeding import make_generator, seeded
from bal.storage import load_tensors, save_tensors

Arrays = dict[str, Tensor]

VERSION = 1
POINTS = 2000  # shown in a scatter plot
SHOWN = 8  # pictures of each kind in Fig. 6, a random choice
GRID = 160  # points of a confidence map, each way

# Two dimensions have no use for L2 normalisation, which would leave the angle alone, nor for the energy, a third one
PLANE = BAL(
    normalisation="whiten",
    evidence="none",
    sampler="uniform",
    training=GANTraining(epochs=60, batch_size=256, learning_rate_D=1e-3),
)


def two_gaussians(rows: int = 2000) -> tuple[Tensor, Tensor]:
    """Points of two classes in the plane, round (-3, 0) and (3, 0)."""
    c = torch.arange(rows) % 2
    centres = torch.tensor([[-3.0, 0.0], [3.0, 0.0]])
    return centres[c] + torch.randn(rows, 2, generator=make_generator(0)), c


def three_layers(x: Tensor, c: Tensor) -> Classifier:
    """The paper's toy classifier: an MLP of three layers on raw points."""
    generator = make_generator(0)
    with seeded(generator):
        model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    train_classifier(model, (x, c), ClassifierTraining(epochs=30), generator=generator, show_progress=False)
    return Classifier(model)


def raw_points(classifier: Classifier, x: Tensor, c: Tensor | None = None) -> Features:
    """Points as their own features, as in Sec. 5.6, with the classifier's logits."""
    return Features(x, classifier(x)[1], c)


def grid_over(points: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """(GRID^2, 2) points over the box of the given ones, wider by ``margin`` of its size each way; and its corners (2, 2)."""
    low, high = points.amin(0), points.amax(0)
    span = high - low
    low, high = low - margin * span, high + margin * span
    axes = [torch.linspace(low[i].item(), high[i].item(), GRID) for i in range(2)]
    return torch.cartesian_prod(*axes), torch.stack([low, high])


def confidences(features: Features, bal: BAL) -> tuple[Tensor, Tensor]:
    """The classifier's p1 and BAL's p1 * p2."""
    log_p1 = log_max_softmax(features.logits)
    return log_p1.exp(), (log_p1 + bal.log_p2(features.f, features.logits)).exp()


def fig1(store: Store) -> Arrays:
    """Confidence maps: a ResNet18 with 2 penultimate neurons on MNIST, an MLP on two Gaussians, each with and without BAL."""
    network = NETWORKS["resnet18-mnist-2"]
    classifier = network.classifier(store)
    train = part_of(network, classifier, store, "mnist", "train")
    bal = replace(PLANE, training=replace(PLANE.training, epochs=4)).fit_features(train.features)
    test = some_of(part_of(network, classifier, store, "mnist", "test"), POINTS).features
    plane, corners = grid_over(test.f, 1.0)
    W, b = classifier.head_tensors()
    softmax, ours = confidences(Features(plane, plane @ W.T + b), bal)
    arrays = {"mnist_points": test.f, "mnist_labels": test.known_labels, "mnist_corners": corners}
    arrays |= {"mnist_softmax": softmax, "mnist_bal": ours}

    x, c = two_gaussians()
    mlp = three_layers(x, c)
    bal = replace(PLANE).fit_features(raw_points(mlp, x, c))
    plane, corners = grid_over(x, 1.0)
    softmax, ours = confidences(raw_points(mlp, plane), bal)
    return arrays | {"toy_points": x, "toy_labels": c, "toy_corners": corners, "toy_softmax": softmax, "toy_bal": ours}


def fig2(store: Store) -> Arrays:
    """Confidences of ID and OOD test images: the ResNet18 of Fashion-MNIST against MNIST and Omniglot, without and with BAL."""
    network = NETWORKS["resnet18-fashion-mnist"]
    classifier = network.classifier(store)
    bal = BAL().fit_features(part_of(network, classifier, store, "fashion-mnist", "train").features)
    arrays: Arrays = {}
    for name in ("fashion-mnist", "mnist", "omniglot"):
        softmax, ours = confidences(part_of(network, classifier, store, name, "test").features, bal)
        arrays |= {f"{name}_softmax": softmax, f"{name}_bal": ours}
    return arrays


def fig4(store: Store) -> Arrays:
    """Features of MNIST in penultimate layers of 2 and of 3 neurons."""
    arrays: Arrays = {}
    for size in (2, 3):
        network = NETWORKS[f"resnet18-mnist-{size}"]
        test = part_of(network, network.classifier(store), store, "mnist", "test").features
        shown = test.rows(some_rows(len(test), POINTS))
        arrays |= {f"points_{size}": shown.f, f"labels_{size}": shown.known_labels}
        arrays[f"accuracy_{size}"] = torch.tensor(test.accuracy())
    return arrays


def fig5(store: Store) -> Arrays:
    """Trivial OOD from the uniform sampler and hard OOD from FGSM beside two Gaussians, in the raw plane."""
    x, c = two_gaussians()
    features = raw_points(three_layers(x, c), x, c)
    # no geometry at all: what REM and RSM make can be shown beside the data as it is
    bal = replace(PLANE, normalisation="identity").fit_features(features)
    synthetic = bal.synthetic(features, rows=1000)
    return {name.replace("ID", "known"): f for name, f in synthetic.items()}


def fig6(store: Store) -> Arrays:
    """Dogs and cats against other pictures: both confidences, and the accuracy on the pictures of a network of CIFAR-10's.

    The network is the DenseNet-BC of CIFAR-10 with a head for its cats and dogs alone; BAL learns from the same 10,000 images.
    """
    network = NETWORKS["cats-and-dogs"]
    classifier = network.classifier(store)
    bal = BAL().fit_features(part_of(network, classifier, store, network.data, "train").features)
    arrays: Arrays = {}
    for name in ("dogs-vs-cats", "dogs-vs-cats-other"):
        f, c, images = every_part(network, store, name)
        features = extract(classifier, f, show_progress=False)
        softmax, ours = confidences(features, bal)
        arrays |= {f"{name}_softmax": softmax, f"{name}_bal": ours, f"{name}_predicted": features.predicted, f"{name}_labels": c}
        arrays[f"{name}_rows"] = some_rows(len(f), SHOWN)
        arrays[f"{name}_images"] = images[arrays[f"{name}_rows"]]
    return arrays


def every_part(network: Network, store: Store, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels and images of a whole data set that the network has not learnt from."""
    splits = list(find_data_set(name).files)
    inputs, labels = zip(*(network.inputs(store, name, split) for split in splits), strict=True)
    images = [torch.from_numpy(load_data_set(name, split)[0]) for split in splits]
    return torch.cat(inputs), torch.cat(labels), torch.cat(images)


PICTURES: dict[str, Callable[[Store], Arrays]] = {"fig1": fig1, "fig2": fig2, "fig4": fig4, "fig5": fig5, "fig6": fig6}


def picture(name: str, store: Store) -> Arrays:
    """The arrays of a figure, from the store or computed now."""
    path = store.folder / "figures" / f"{store.preset}-{name}.safetensors"
    recipe = {"version": VERSION, "bal": repr(BAL()), "plane": repr(PLANE)}
    try:
        arrays, saved = load_tensors(path)
        if saved == recipe:
            return arrays
    except StorageError:
        pass
    arrays = PICTURES[name](store)
    save_tensors(path, arrays, recipe)
    return arrays
