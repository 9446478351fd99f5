"""Each detector's score on a small fixed input, against a value worked by hand or by a few lines of numpy written from its paper.

The features are those of a tiny network with ReLU features, so that logits = W f + b; oracles use numpy alone.
"""

import numpy as np
import pytest
import torch
from torch import nn

from bal.backbones import Classifier, ClassifierTraining, train_classifier
from bal.detectors import (
    AEC,
    ASH,
    DICE,
    FDBD,
    GCPL,
    GEN,
    KNN,
    NCI,
    ODIN,
    SCALE,
    SHE,
    Energy,
    Entropy,
    GeneralizedODIN,
    GradNorm,
    KLMatching,
    Mahalanobis,
    MahalanobisPlusPlus,
    MaxLogit,
    MaxSoftmax,
    ReAct,
    RelativeMahalanobis,
    ViM,
    VirtualOutliers,
)
from bal.detectors.knn import kth_distance
from bal.features import Features
from bal.seeding import make_generator, seeded


def make_features(rows, seed):
    """Three classes in six dimensions, features not negative, logits from a fixed head."""
    rng = np.random.default_rng(seed)
    W, b = np.random.default_rng(99).normal(size=(3, 6)), np.array([0.3, -0.2, 0.1])
    c = np.arange(rows) % 3
    f = np.maximum(2 * np.eye(3, 6)[c] + rng.normal(size=(rows, 6)), 0).astype(np.float32)
    logits = f @ W.T + 2 * np.eye(3)[c]  # a shift that makes most predictions right
    W = np.hstack([W])
    return f.astype(np.float64), logits.astype(np.float32).astype(np.float64), c, W.astype(np.float32).astype(np.float64), b


@pytest.fixture(scope="module")
def train():
    f, _, c, W, b = make_features(60, 1)
    W = W + 2 * np.eye(3, 6)
    b = b.astype(np.float32).astype(np.float64)
    W = W.astype(np.float32).astype(np.float64)
    return f, f @ W.T + b, c, W, b


@pytest.fixture(scope="module")
def query(train):
    f, *_ = make_features(7, 2)
    W, b = train[3:]
    return f, f @ W.T + b


def as_features(f, logits, c=None, head=None):
    tensors = None if head is None else tuple(torch.from_numpy(x.astype(np.float32)) for x in head)
    return Features(torch.from_numpy(f), torch.from_numpy(logits), None if c is None else torch.from_numpy(c), head=tensors)


def scored(detector, train, query):
    f, logits, c, W, b = train
    return detector.fit_features(as_features(f, logits, c, (W, b))).score(as_features(*query))


def softmax(logits):
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def logsumexp(logits):
    return np.log(np.exp(logits).sum(1))


def agree(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def as32(x):
    return x.astype(np.float32).astype(np.float64)


def test_max_softmax(train, query):
    agree(scored(MaxSoftmax(), train, query), np.log(softmax(query[1]).max(1)))


def test_max_logit(train, query):
    agree(scored(MaxLogit(), train, query), as32(query[1]).max(1))


def test_energy_at_temperature_1_is_logsumexp_and_at_2_is_scaled(train, query):
    agree(scored(Energy(), train, query), logsumexp(query[1]))
    agree(scored(Energy(temperature=2.0), train, query), 2 * logsumexp(query[1] / 2))


def test_entropy(train, query):
    p = softmax(query[1])
    agree(scored(Entropy(), train, query), (p * np.log(p)).sum(1))


def test_gen(train, query):
    p = np.sort(softmax(query[1]), 1)[:, ::-1]
    agree(scored(GEN(), train, query), -((p * (1 - p)) ** 0.1).sum(1))
    agree(scored(GEN(gamma=0.5, M=2), train, query), -((p[:, :2] * (1 - p[:, :2])) ** 0.5).sum(1))


def test_gen_does_not_saturate_where_the_softmax_does(blobs):
    """p = 1 - 2e-22 in the first row, 1 - 2e-26 in the second: both are 1 in float64."""
    logits = torch.tensor([[50.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    low, high = GEN().fit_features(blobs).score(Features(blobs.f[:2], logits))
    assert low < high < 0


def test_kl_matching(train, query):
    p, templates = softmax(train[1]), []
    for k in range(3):
        templates.append(p[p.argmax(1) == k].mean(0))
    q = softmax(query[1])
    kl = np.array([[(row * np.log(row / d)).sum() for d in templates] for row in q])
    agree(scored(KLMatching(), train, query), -kl.min(1))


def mahalanobis_by_numpy(f, c, q):
    means = np.array([f[c == k].mean(0) for k in range(3)])
    precision = np.linalg.pinv(np.cov((f - means[c]).T, bias=True))
    return np.array([[(x - m) @ precision @ (x - m) for m in means] for x in q])


def test_mahalanobis(train, query):
    agree(scored(Mahalanobis(), train, query), -mahalanobis_by_numpy(train[0], train[2], query[0]).min(1))


def test_mahalanobis_on_normalised_features(train, query):
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train[0], query[0])]
    agree(scored(MahalanobisPlusPlus(), train, query), -mahalanobis_by_numpy(unit[0], train[2], unit[1]).min(1))


def test_relative_mahalanobis(train, query):
    f, q = train[0], query[0]
    background = np.linalg.pinv(np.cov(f.T, bias=True))
    distance = np.array([(x - f.mean(0)) @ background @ (x - f.mean(0)) for x in q])
    agree(scored(RelativeMahalanobis(), train, query), -(mahalanobis_by_numpy(f, train[2], q) - distance[:, None]).min(1))


@pytest.mark.parametrize("k", [1, 5, 60])
def test_knn_equals_brute_force(train, query, k):
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train[0], query[0])]
    distances = np.sort(np.linalg.norm(unit[1][:, None] - unit[0][None], axis=2), 1)
    agree(scored(KNN(k=k), train, query), -distances[:, k - 1])


def test_knn_goes_by_the_direction_of_a_feature_however_long(train, query):
    f, *rest = query
    agree(scored(KNN(k=5), train, (2.0**70 * f, *rest)), scored(KNN(k=5), train, query))


def test_knn_is_the_same_in_many_small_chunks_and_exact_for_near_neighbours(monkeypatch):
    g = make_generator(0)
    bank = torch.nn.functional.normalize(torch.randn(500, 8, generator=g), dim=1)
    queries = torch.nn.functional.normalize(bank[:50] + 1e-5 * torch.randn(50, 8, generator=g), dim=1)
    whole = kth_distance(queries, bank, 1)
    exact = torch.cdist(queries.double(), bank.double(), compute_mode="donot_use_mm_for_euclid_dist").min(1).values
    torch.testing.assert_close(whole.double(), exact, rtol=1e-2, atol=1e-8)
    monkeypatch.setattr("bal.detectors.knn.CHUNK_NUMBERS", 1500)
    torch.testing.assert_close(kth_distance(queries, bank, 1), whole)


def test_vim_residual_is_the_direct_projection(train, query):
    f, logits, _, W, b = train
    origin = -np.linalg.pinv(W) @ b
    values, vectors = np.linalg.eigh((f - origin).T @ (f - origin))
    kept = vectors[:, np.argsort(-values)[:3]]  # half of six

    def residual(x):
        centred = x - origin
        return np.linalg.norm(centred - centred @ kept @ kept.T, axis=1)  # what the principal subspace leaves

    alpha = logits.max(1).sum() / residual(f).sum()
    detector = ViM()
    agree(scored(detector, train, query), logsumexp(query[1]) - alpha * residual(query[0]))
    agree(detector.residual_length(torch.from_numpy(query[0])).numpy(), residual(query[0]))
    np.testing.assert_allclose(W @ origin + b, 0, atol=1e-6)  # all logits are 0 at the origin


def test_fdbd(train, query):
    f, _, _, W, b = train
    expected = []
    for x, logits in zip(*query, strict=True):
        c = logits.argmax()
        distances = [
            abs((W[c] - W[k]) @ x + b[c] - b[k]) / np.linalg.norm(W[c] - W[k]) / np.linalg.norm(x - f.mean(0))
            for k in range(3)
            if k != c
        ]
        expected.append(np.mean(distances))
    agree(scored(FDBD(), train, query), expected)


def test_nci(train, query):
    f, logits, _, W, _ = train

    def proximity(x, logits):
        centred = x - f.mean(0)
        return (W[logits.argmax(1)] * centred).sum(1) / np.linalg.norm(centred, axis=1)

    agree(scored(NCI(alpha=0.01), train, query), proximity(*query) + 0.01 * np.abs(query[0]).sum(1))
    alpha = proximity(f, logits).std(ddof=1) / np.abs(f).sum(1).std(ddof=1)
    agree(scored(NCI(), train, query), proximity(*query) + alpha * np.abs(query[0]).sum(1))


def test_she(train, query):
    f, logits, c, *_ = train
    right = logits.argmax(1) == c
    patterns = np.array([f[right & (c == k)].mean(0) for k in range(3)])
    agree(scored(SHE(), train, query), (query[0] * patterns[query[1].argmax(1)]).sum(1))


def test_gradnorm_equals_the_gradient_of_the_kl_divergence(train, query):
    """By autograd: the L1 norm of d KL(uniform || softmax) / dW for each row."""
    W, b = (torch.from_numpy(x).requires_grad_() for x in train[3:])
    expected = []
    for x in torch.from_numpy(query[0]):
        loss = -(torch.log_softmax(W @ x + b, 0) / 3).sum()
        expected.append(torch.autograd.grad(loss, W)[0].abs().sum().item())
    agree(scored(GradNorm(), train, query), expected)


def test_react(train, query):
    f, _, _, W, b = train
    clip = np.sort(as32(f).ravel())[int(f.size * 0.9)]
    agree(scored(ReAct(), train, query), logsumexp(np.minimum(query[0], clip) @ W.T + b))


def test_ash_and_scale(train, query):
    W, b = train[3:]
    ash, scale = [], []
    for x in query[0]:
        kept = np.where(x >= np.sort(x)[::-1][2], x, 0)  # 50 % of six: the top three
        ratio = np.exp(x.sum() / kept.sum())
        ash.append(W @ (kept * ratio) + b)
        scale.append(W @ (x * ratio) + b)
    agree(scored(ASH(percentile=50), train, query), logsumexp(np.array(ash)))
    agree(scored(SCALE(percentile=50), train, query), logsumexp(np.array(scale)))


def test_ash_and_scale_are_the_plain_energy_where_activations_do_not_add_up_to_something_positive(train):
    W, b = train[3:]
    negative = -np.ones((2, 6))
    for detector in (ASH(), SCALE()):
        ours = scored(detector, train, (negative, negative @ W.T + b))
        agree(ours, logsumexp(negative @ W.T + b))


def test_dice(train, query):
    f, _, _, W, b = train
    contribution = W * f.mean(0)
    threshold = np.sort(contribution.ravel())[::-1][8]  # half of 18 weights: the ninth largest
    agree(scored(DICE(sparsity=0.5), train, query), logsumexp(query[0] @ np.where(contribution >= threshold, W, 0).T + b))


def test_vos_scores_by_the_log_sigmoid_of_its_network(train, query):
    detector = VirtualOutliers(epochs=2, hidden=(4,))
    ours = scored(detector, train, query)
    x = (query[0] - train[0].mean(0)) / train[0].std(0)
    first, _, last = detector.network_
    hidden = x @ first.weight.detach().numpy().T.astype(np.float64) + first.bias.detach().numpy()
    hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
    logit = hidden @ last.weight.detach().numpy().T.astype(np.float64)[:, 0] + last.bias.item()
    np.testing.assert_allclose(ours, -np.log1p(np.exp(-logit)), rtol=1e-6, atol=1e-6)


# Detectors of inputs: a network of one hidden layer on four inputs, small enough to differentiate by hand.


@pytest.fixture(scope="module")
def images():
    g = make_generator(3)
    labels = torch.arange(90) % 3
    return torch.rand(90, 4, generator=g) * 0.3 + 0.6 * torch.eye(3, 4)[labels], labels


@pytest.fixture(scope="module")
def network(images):
    g = make_generator(4)
    with seeded(g):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    train_classifier(model, images, ClassifierTraining(epochs=60, batch_size=30, learning_rate=1e-2), generator=g)
    return Classifier(model)


def test_odin_with_epsilon_0_and_temperature_1_is_max_softmax(network, images):
    x = images[0]
    odin = ODIN(temperature=1.0, epsilon=0.0).fit(network, images, show_progress=False)
    agree(odin.score(x), MaxSoftmax().fit(network, images, show_progress=False).score(x))


def test_odin_by_finite_differences(network, images):
    x = images[0][:5].double()
    W1, b1, W2, b2 = (p.detach().double().numpy() for p in network.model.parameters())

    def log_s(x):
        logits = (np.tanh(x @ W1.T + b1) @ W2.T + b2) / 10
        return (logits - logsumexp(logits)[:, None]).max(1)

    x = x.numpy()
    slope = np.zeros_like(x)
    for j in range(4):
        step = np.zeros(4)
        step[j] = 1e-6
        slope[:, j] = (log_s(x + step) - log_s(x - step)) / 2e-6
    ours = ODIN(temperature=10.0, epsilon=2e-3).fit(network, images, show_progress=False).score(images[0][:5])
    agree(ours, log_s(x + 2e-3 * np.sign(slope)))
    assert (log_s(x + 2e-3 * np.sign(slope)) > log_s(x)).all(), "the step raises the confidence"


@pytest.mark.parametrize(
    ("data", "setting"), [("mnist", (10, 5e-4)), ("cifar10", (10, 2e-3)), ("cifar100", (100, 5e-4)), ("svhn", (10, 5e-4))]
)
def test_odin_has_the_papers_settings(data, setting):
    odin = ODIN.paper(data)
    assert (odin.temperature, odin.epsilon) == setting


@pytest.mark.parametrize("similarity", ["inner", "euclidean", "cosine"])
def test_generalized_odin_scores_by_h_and_classifies_by_h_over_g(network, images, similarity):
    quick = ClassifierTraining(epochs=2, batch_size=30)
    detector = GeneralizedODIN(similarity=similarity, epsilon=0.0, training=quick).fit(network, images, show_progress=False)
    head = detector.head()
    with torch.no_grad():
        f = detector.network_[1].model[:-1](images[0]).numpy().astype(np.float64)
    w, bias = head.weight.detach().numpy().astype(np.float64), head.bias.detach().numpy()
    h = {
        "inner": lambda: f @ w.T + bias,
        "euclidean": lambda: -((f[:, None] - w[None]) ** 2).sum(2),
        "cosine": lambda: (f / np.linalg.norm(f, axis=1)[:, None]) @ (w / np.linalg.norm(w, axis=1)[:, None]).T,
    }[similarity]()
    np.testing.assert_allclose(detector.score(images[0]), h.max(1), rtol=1e-6, atol=1e-6)
    linear, norm, _ = head.g
    z = f @ linear.weight.detach().numpy()[0] + linear.bias.item()
    z = (z - norm.running_mean.item()) / np.sqrt(norm.running_var.item() + norm.eps) * norm.weight.item() + norm.bias.item()
    quotient = h * (1 + np.exp(-z))[:, None]  # h / sigmoid(z)
    assert np.array_equal(detector.predict(images[0], threshold=-np.inf).label, quotient.argmax(1))


def test_generalized_odin_chooses_epsilon_by_the_mean_id_score_alone(network, images):
    quick = ClassifierTraining(epochs=1, batch_size=30)
    detector = GeneralizedODIN(training=quick).fit(network, images, show_progress=False)
    means = {}
    for epsilon in GeneralizedODIN.GRID:
        fixed = GeneralizedODIN(training=quick, epsilon=epsilon).fit(network, images, show_progress=False)
        means[epsilon] = fixed.score(images[0]).mean()
    assert detector.epsilon_.item() == max(means, key=means.get)


def test_gcpl_scores_by_the_nearest_prototype(network, images):
    detector = GCPL(training=ClassifierTraining(epochs=2, batch_size=30)).fit(network, images, show_progress=False)
    with torch.no_grad():
        f = detector.network_[1].model[:-1](images[0]).numpy().astype(np.float64)
    prototypes, gamma = detector.head().prototypes.detach().numpy().astype(np.float64), detector.head().gamma.item()
    distances = ((f[:, None] - prototypes[None]) ** 2).sum(2)
    np.testing.assert_allclose(detector.score(images[0]), -gamma * distances.min(1), rtol=1e-6, atol=1e-6)
    assert np.array_equal(detector.predict(images[0], threshold=-np.inf).label, distances.argmin(1))


def test_gcpl_loss_is_distance_cross_entropy_plus_the_prototype_loss(network, images):
    detector = GCPL(gamma=2.0, training=ClassifierTraining(epochs=1)).fit(network, images, show_progress=False)
    distances = np.array([[1.0, 2.0, 3.0], [2.0, 0.5, 4.0]])
    logits = torch.from_numpy(-2.0 * distances)
    expected = np.mean(
        [-(-2 * d[c] - np.log(np.exp(-2 * d).sum())) + 0.01 * d[c] for d, c in zip(distances, (0, 1), strict=True)]
    )
    assert detector._loss(logits, torch.tensor([0, 1])).item() == pytest.approx(expected)


def test_aec_is_confidence_times_the_factor_of_the_error_in_grey_levels(network, images):
    detector = AEC(epochs=2, hidden=(6,), code=2).fit(network, images, show_progress=False)
    with torch.no_grad():
        rebuilt = detector.autoencoder_(images[0])
    p1 = softmax(network(images[0])[1].double().numpy()).max(1)
    error = 255 * (images[0] - rebuilt).abs().mean(1).double().numpy()
    agree(np.exp(detector.score(images[0])), p1 * np.exp(-0.1 * error))
