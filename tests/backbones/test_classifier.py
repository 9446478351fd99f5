import copy
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bal.backbones import Classifier, ClassifierTraining, Normalise
from bal.backbones.classifier import call, output_tensor
from bal.detectors import make_detector
from bal.discrimination import GANTraining
from bal.errors import HeadError, ShapeError


def test_the_feature_is_the_input_of_the_last_linear_layer(tiny_model, tiny_images):
    x = tiny_images[0]
    f, logits = Classifier(tiny_model)(x)
    tiny_model.eval()
    with torch.no_grad():
        by_hand = tiny_model[:-1](x)
    assert torch.equal(f, by_hand)
    assert torch.equal(logits, by_hand @ tiny_model[-1].weight.T + tiny_model[-1].bias) or torch.allclose(logits, tiny_model(x))


@pytest.mark.parametrize("training", [True, False])
def test_a_call_leaves_the_model_exactly_as_found(tiny_model, tiny_images, training):
    tiny_model.train(training)
    tiny_model[4].train(not training)  # one layer in the other mode
    tiny_model[-1].weight.requires_grad_(False)
    tiny_model[-1].register_forward_hook(lambda *_: None)
    before = copy.deepcopy(tiny_model.state_dict())
    modes = [module.training for module in tiny_model.modules()]
    hooks = [dict(module._forward_hooks) for module in tiny_model.modules()]
    wants_grad = [p.requires_grad for p in tiny_model.parameters()]

    f, logits = Classifier(tiny_model)(tiny_images[0])

    assert all(torch.equal(before[name], tensor) for name, tensor in tiny_model.state_dict().items())
    assert modes == [module.training for module in tiny_model.modules()]
    assert hooks == [dict(module._forward_hooks) for module in tiny_model.modules()]
    assert wants_grad == [p.requires_grad for p in tiny_model.parameters()]
    assert all(p.grad is None for p in tiny_model.parameters())
    assert not f.requires_grad
    assert not logits.requires_grad


def test_modes_and_hooks_come_back_even_after_an_error(tiny_model):
    tiny_model.train()
    with pytest.raises(ShapeError, match="cannot take inputs of shape"):
        Classifier(tiny_model)(torch.zeros(2, 3, 4, 4))
    assert all(module.training for module in tiny_model.modules())
    assert not tiny_model[-1]._forward_hooks


def test_a_row_scores_the_same_alone_and_in_a_batch(tiny_classifier, tiny_images):
    """Fault 21."""
    x = tiny_images[0]
    f, logits = tiny_classifier(x)
    for row in (0, 17, 59):
        f_1, logits_1 = tiny_classifier(x[row : row + 1])
        torch.testing.assert_close(f_1[0], f[row], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(logits_1[0], logits[row], rtol=1e-5, atol=1e-6)


def test_head_can_be_named(tiny_model, tiny_images):
    classifier = Classifier(tiny_model, head="5")
    assert (classifier.dim, classifier.classes) == (64, 6)
    assert classifier(tiny_images[0])[0].shape == (60, 64)


class TwoHeads(nn.Module):
    """The auxiliary head is defined after the real one, so the search finds the wrong layer."""

    def __init__(self, *, use_auxiliary: bool) -> None:
        super().__init__()
        self.body, self.head, self.auxiliary = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)
        self.use_auxiliary = use_auxiliary

    def forward(self, x):
        f = torch.relu(self.body(x))
        if self.use_auxiliary:
            self.auxiliary(f)
        return self.head(f)


@pytest.mark.parametrize("use_auxiliary", [True, False])
def test_a_last_layer_that_does_not_make_the_output_is_refused_with_the_names_to_choose_from(use_auxiliary):
    model = TwoHeads(use_auxiliary=use_auxiliary)
    x = torch.randn(32, 4)
    with pytest.raises(HeadError, match=r"head=.*'body', 'head', 'auxiliary'"):
        Classifier(model)(x)
    f, logits = Classifier(model, head="head")(x)
    assert f.shape == (32, 5)
    assert torch.allclose(logits, model(x))


@pytest.mark.parametrize("wrap", [lambda y: (y, None), lambda y: SimpleNamespace(logits=y), lambda y: y.log_softmax(1)])
def test_outputs_may_be_tuples_objects_with_logits_or_normalised(tiny_model, tiny_images, wrap):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tiny_model

        def forward(self, x):
            return wrap(self.inner(x))

    assert torch.equal(Classifier(Wrapped())(tiny_images[0])[1], Classifier(tiny_model)(tiny_images[0])[1])


@pytest.mark.parametrize(("head", "words"), [("nope", "no layer 'nope'"), ("0", "is a Conv2d, not nn.Linear")])
def test_a_wrong_head_name_is_refused(tiny_model, head, words):
    with pytest.raises(HeadError, match=words):
        Classifier(tiny_model, head=head)


def test_a_network_without_a_linear_layer_is_refused():
    with pytest.raises(HeadError, match=r"no nn\.Linear layer"):
        Classifier(nn.Conv2d(1, 2, 3))


def test_a_head_that_is_called_twice_is_refused(tiny_model, tiny_images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tiny_model

        def forward(self, x):
            return (self.inner(x) + self.inner(x + 0.01)) / 2

    with pytest.raises(HeadError, match="used 2 times"):
        Classifier(Twice())(tiny_images[0])


def test_an_auxiliary_head_that_agrees_by_chance_is_still_refused(tiny_images):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.main, self.aux = nn.Linear(16, 5), nn.Linear(5, 3), nn.Linear(5, 3)
            self.aux.load_state_dict({k: 2 * v for k, v in self.main.state_dict().items()})  # the same argmax everywhere

        def forward(self, x):
            f = self.body(x.flatten(1))
            self.aux(f)
            return self.main(f)

    with pytest.raises(HeadError, match="does not make the model's output"):
        Classifier(Deep())(tiny_images[0])


def test_code_that_works_in_place_reaches_neither_the_features_nor_the_users_array():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x):
            f = self.body(x.sub_(0.5))
            logits = self.head(f)
            f.zero_()
            return logits

    x = torch.rand(6, 4)
    before = x.clone()
    f, _ = Classifier(InPlace())(x)
    assert torch.equal(x, before)
    assert f.abs().sum() > 0


def test_preprocessing_is_in_eval_mode_too(tiny_model, tiny_images):
    preprocess = nn.BatchNorm2d(1)
    before = preprocess.running_mean.clone()
    a = Classifier(tiny_model, preprocess=preprocess)(tiny_images[0])[0]
    assert torch.equal(preprocess.running_mean, before)
    assert preprocess.training
    assert torch.equal(a, Classifier(tiny_model, preprocess=preprocess)(tiny_images[0])[0])


def test_threads_do_not_disturb_each_other(tiny_model, tiny_images):
    tiny_model.train()
    classifier, x = Classifier(tiny_model), tiny_images[0]
    expected = classifier(x)[0]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: (i, classifier(x[i : i + 1])[0]), [i % 60 for i in range(300)]))
    assert all(torch.allclose(f[0], expected[i], atol=1e-5) for i, f in answers)
    assert all(module.training for module in tiny_model.modules())


def test_the_body_may_have_another_precision_than_the_head():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 5).double(), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.body(x).float())

    assert Classifier(Mixed())(torch.rand(2, 4))[1].shape == (2, 3)


@pytest.mark.parametrize("wrong", ["resnet18", None, lambda x: x])
def test_what_is_not_a_module_is_refused(wrong):
    with pytest.raises(HeadError, match=r"must be a torch\.nn\.Module"):
        Classifier(wrong)


def test_buffers_that_the_state_dict_leaves_out_are_part_of_the_fingerprint(tiny_model):
    class Shift(nn.Module):
        def __init__(self, by):
            super().__init__()
            self.register_buffer("by", torch.tensor(by), persistent=False)

        def forward(self, x):
            return x + self.by

    a, b = (Classifier(tiny_model, preprocess=Shift(by)).fingerprint() for by in (0.0, 5.0))
    assert a != b


def test_a_sequence_output_is_refused():
    with pytest.raises(ShapeError, match="one feature and one logit vector"):
        Classifier(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)))(torch.zeros(2, 7, 4))


def test_half_precision_logits_are_computed_in_float32():
    """Fault 2: 300 * 300 overflows float16 (65504) and must not become Inf."""
    model = nn.Sequential(nn.Identity(), nn.Linear(2, 2)).half()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[300.0, 0.0], [0.0, 1.0]]))
        model[1].bias.zero_()
    f, logits = Classifier(model)(torch.tensor([[300.0, 1.0]]))
    assert f.dtype == logits.dtype == torch.float32
    assert logits.tolist() == [[90000.0, 1.0]]


def test_the_fingerprint_changes_with_any_weight_and_with_the_preprocessing(tiny_model):
    before = Classifier(tiny_model).fingerprint()
    assert Classifier(tiny_model).fingerprint() == before
    assert Classifier(tiny_model, preprocess=Normalise((0.5,), (0.5,))).fingerprint() != before
    tiny_model[1].running_mean[0] += 1e-6
    assert Classifier(tiny_model).fingerprint() != before


def test_preprocessing_comes_before_the_model(tiny_model, tiny_images):
    x = tiny_images[0]
    f, _ = Classifier(tiny_model, preprocess=Normalise((0.5,), (0.25,)))(x)
    assert torch.allclose(f, Classifier(tiny_model)((x - 0.5) / 0.25)[0])


# Look-alikes of the libraries whose models people bring: small, but built, named and called in the same way.


def body(channels=4):
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())


class TorchvisionResNet(nn.Module):
    """conv, pool, flatten, fc."""

    def __init__(self):
        super().__init__()
        self.layers, self.avgpool, self.fc = body(), nn.AdaptiveAvgPool2d(1), nn.Linear(4, 5)

    def penultimate(self, x):
        return torch.flatten(self.avgpool(self.layers(x)), 1)

    def forward(self, x):
        return self.fc(self.penultimate(x))


class TorchvisionVGG(TorchvisionResNet):
    """A classifier of several layers with dropout."""

    def __init__(self):
        super().__init__()
        del self.fc
        self.classifier = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, 5))

    def penultimate(self, x):
        return self.classifier[:-1](super().penultimate(x))

    def forward(self, x):
        return self.classifier[-1](self.penultimate(x))


class TimmHead(nn.Module):
    """Pooling, norm, dropout and fc in one module."""

    def __init__(self, dim, num_classes):
        super().__init__()
        self.global_pool, self.norm, self.drop = nn.AdaptiveAvgPool2d(1), nn.LayerNorm(dim), nn.Dropout(0.5)
        self.fc = nn.Linear(dim, num_classes)

    def forward(self, x, pre_logits=False):
        x = self.drop(self.norm(self.global_pool(x).flatten(1)))
        return x if pre_logits else self.fc(x)


class TimmModel(nn.Module):
    """forward_features, forward_head(pre_logits=True), get_classifier; a layer of the body is defined after the head."""

    def __init__(self, num_classes=5):
        super().__init__()
        self.num_classes = num_classes
        self.head = TimmHead(4, num_classes)
        self.stem, self.gate = body(), nn.Linear(4, 4)

    def get_classifier(self):
        return self.head.fc

    def forward_features(self, x):
        x = self.stem(x)
        return x * torch.sigmoid(self.gate(x.mean((2, 3))))[:, :, None, None]

    def forward_head(self, x, pre_logits=False):
        return self.head(x, pre_logits=pre_logits)

    def penultimate(self, x):
        return self.forward_head(self.forward_features(x), pre_logits=True)

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


class HuggingFaceVision(nn.Module):
    """The input by keyword alone, an object with .logits back."""

    main_input_name = "pixel_values"

    def __init__(self):
        super().__init__()
        self.vit, self.classifier = body(), nn.Linear(4, 5)

    def penultimate(self, x):
        return self.vit(x).mean((2, 3))

    def forward(self, *, pixel_values=None, labels=None):
        return SimpleNamespace(loss=None, logits=self.classifier(self.penultimate(pixel_values)))


class HuggingFaceText(nn.Module):
    """Token ids in, a pooled first token, a dictionary back."""

    main_input_name = "input_ids"

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(20, 6)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
        self.dropout, self.classifier = nn.Dropout(0.5), nn.Linear(6, 5)

    def penultimate(self, ids):
        return self.encoder(self.embeddings(ids))[:, 0]

    def forward(self, input_ids=None, attention_mask=None):
        return {"logits": self.classifier(self.dropout(self.penultimate(input_ids)))}


class HuggingFaceLanguageModel(nn.Module):
    """A score for every token; the last one that is not padding (0) is the answer, as for GPT-2 and Llama."""

    main_input_name = "input_ids"

    def __init__(self):
        super().__init__()
        self.embeddings, self.model = nn.Embedding(20, 6), nn.GRU(6, 6, batch_first=True)
        self.score = nn.Linear(6, 5, bias=False)

    def penultimate(self, ids):
        hidden, _ = self.model(self.embeddings(ids))
        return hidden[torch.arange(len(ids)), (ids != 0).int().sum(1) - 1]

    def forward(self, input_ids):
        hidden, _ = self.model(self.embeddings(input_ids))
        logits = self.score(hidden)
        last = (input_ids != 0).int().sum(1) - 1
        return SimpleNamespace(logits=logits[torch.arange(len(logits)), last])


class Perceptron(nn.Sequential):
    """A plain Sequential on vectors."""

    def __init__(self):
        super().__init__(nn.Linear(7, 6), nn.GELU(), nn.Linear(6, 5))

    def penultimate(self, x):
        return self[1](self[0](x))


def images():
    return torch.rand(12, 3, 8, 8)


def vectors():
    return torch.randn(12, 7)


def tokens():
    ids = torch.randint(1, 20, (12, 9))
    ids[3, 5:], ids[7, 1:] = 0, 0
    return ids


LOOK_ALIKES = [
    (TorchvisionResNet, images, "fc"),
    (TorchvisionVGG, images, "classifier.3"),
    (TimmModel, images, "head.fc"),
    (HuggingFaceVision, images, "classifier"),
    (HuggingFaceText, tokens, "classifier"),
    (HuggingFaceLanguageModel, tokens, "score"),
    (Perceptron, vectors, "2"),
]
look_alikes = pytest.mark.parametrize(("kind", "inputs", "head"), LOOK_ALIKES, ids=[kind.__name__ for kind, _, _ in LOOK_ALIKES])


@pytest.fixture(autouse=True)
def same_random_weights():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@look_alikes
def test_models_in_the_style_of_the_libraries_are_read_at_their_head(kind, inputs, head):
    model, x = kind().train(), inputs()
    classifier = Classifier(model)
    assert classifier.head_name == head
    f, logits = classifier(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(f, model.penultimate(x))
        torch.testing.assert_close(logits, model.get_submodule(head)(f))
        torch.testing.assert_close(logits, output_tensor(call(model, x)))


@look_alikes
@pytest.mark.parametrize("name", ["BAL", "Mahalanobis", "GCPL"])
def test_detectors_go_from_fit_to_prediction_on_them(kind, inputs, head, name):
    x = torch.cat([inputs() for _ in range(10)])
    classifier = Classifier(kind())
    settings = {"GCPL": {"training": ClassifierTraining(epochs=1)}, "BAL": {"training": GANTraining(epochs=1)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels at random, networks untrained
        detector = make_detector(name, **settings.get(name, {})).fit(classifier, (x, torch.arange(120) % 5), show_progress=False)
    answer = detector.calibrate(x[:40]).predict(x)
    assert answer.valid.all()
    assert set(answer.label) <= {-1, 0, 1, 2, 3, 4}


def test_detectors_that_take_a_step_of_the_input_say_that_token_ids_have_none():
    for name in ("ODIN", "Generalized ODIN"):
        with pytest.raises(ShapeError, match=r"needs real inputs, got torch\.int64"):
            make_detector(name).fit(HuggingFaceText(), (tokens(), torch.arange(12) % 5), show_progress=False)


def test_wrappers_for_several_devices_and_for_compiling_are_taken_off_and_leave_the_same_fingerprint(tmp_path):
    model, x = TorchvisionResNet(), images()
    plain = Classifier(model)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        compiled = torch.compile(model, backend="eager")
        wrapped = [nn.DataParallel(model), nn.parallel.DistributedDataParallel(model), compiled, nn.DataParallel(compiled)]
    finally:
        torch.distributed.destroy_process_group()
    for wrapper in wrapped:
        classifier = Classifier(wrapper)
        assert classifier.head_name == "fc"
        assert classifier.fingerprint() == plain.fingerprint()
        assert torch.equal(classifier(x)[0], plain(x)[0])


def test_a_head_on_every_token_that_makes_the_answer_otherwise_is_refused():
    class Mean(HuggingFaceLanguageModel):
        def forward(self, input_ids):
            hidden, _ = self.model(self.embeddings(input_ids))
            return self.score(hidden).mean(1)

    for head in (None, "score"):
        with pytest.raises(ShapeError, match="one feature and one logit vector for each input"):
            Classifier(Mean(), head=head)(tokens())


def test_a_timm_model_without_classes_is_refused():
    class Headless(TimmModel):
        def __init__(self):
            super().__init__()
            self.head.fc = nn.Identity()

    with pytest.raises(HeadError, match="does not make the model's output"):
        Classifier(Headless())(images())


def test_a_dictionary_without_logits_is_refused():
    class Odd(Perceptron):
        def forward(self, x):
            return {"scores": super().forward(x)}

    with pytest.raises(HeadError, match="returned a dict; expected a tensor"):
        Classifier(Odd())(vectors())


def test_real_transformers_models_work_where_they_are_installed():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=5
    )
    f, logits = Classifier(transformers.BertForSequenceClassification(config))(tokens())
    assert (f.shape, logits.shape) == ((12, 8), (12, 5))
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=5
    )
    f, logits = Classifier(transformers.ViTForImageClassification(config))(images())
    assert (f.shape, logits.shape) == ((12, 8), (12, 5))


def wide_network(channels):
    """Its largest tensor has ``channels`` x 8 x 8 numbers for each row."""
    return nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3))


@pytest.mark.parametrize(("channels", "sizes"), [(4, [100]), (2048, [32, 32, 32, 4]), (65536, [16] * 6 + [4])])
def test_a_batch_passes_in_parts_whose_largest_tensor_has_room(channels, sizes, generator):
    network, seen = wide_network(channels), []
    x = torch.rand(100, 1, 8, 8, generator=generator)
    classifier = Classifier(network)
    classifier(x[:17])  # where rows are weighed, once
    network.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    f, logits = classifier(x)
    assert seen == sizes
    assert all(rows * channels * 8 * 8 * 4 <= 16 << 20 or rows <= 16 for rows in seen)
    by_hand = network[:-1](x)
    torch.testing.assert_close((f, logits), (by_hand, network[-1](by_hand)))


def test_a_preprocessing_on_another_device_than_the_model_is_copied_there_and_stays(tiny_model):
    own = Normalise((0.5,), (0.2,))
    classifier = Classifier(tiny_model.to("meta"), preprocess=own)
    assert classifier._prepare(torch.zeros(2, 1, 4, 4)).device.type == "meta"
    assert own.mean.device.type == "cpu"


def test_small_batches_are_neither_weighed_nor_split(generator):
    network, seen = wide_network(4), []
    network.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    Classifier(network)(torch.rand(16, 1, 8, 8, generator=generator))
    assert seen == [16]


class Squeezing(nn.Module):
    """Drops every axis of size 1, as many networks do after their pooling: that of a single row too."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 8, 3), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(nn.functional.adaptive_avg_pool2d(self.body(x), 1).squeeze())


def test_no_part_of_a_batch_is_a_single_row(generator):
    x = torch.rand(17, 1, 256, 256, generator=generator)  # 16 pass at once
    f, logits = Classifier(Squeezing())(x)
    assert (f.shape, logits.shape) == ((17, 8), (17, 3))


def test_channels_last_is_told_as_such():
    with pytest.raises(ShapeError, match=r"channels last: give \(N, channels, height, width\), x.transpose\(0, 3, 1, 2\)"):
        Classifier(wide_network(4))(torch.zeros(20, 8, 8, 1))


def test_a_replica_has_the_same_weights_in_the_same_memory_and_modules_of_its_own(tiny_model, tiny_images):
    classifier = Classifier(tiny_model, preprocess=Normalise((0.5,), (0.2,)))
    other = classifier.replica()
    pairs = list(zip(classifier.model.parameters(), other.model.parameters(), strict=True))
    assert all(mine is theirs for mine, theirs in pairs)
    assert other.head is not classifier.head
    assert other.head is dict(other.model.named_modules())[other.head_name]
    assert other.fingerprint() == classifier.fingerprint()
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda i: (classifier, other)[i % 2](tiny_images[0]), range(40)))
    assert all(torch.equal(a, b) for answer in answers for a, b in zip(answer, answers[0], strict=True))
