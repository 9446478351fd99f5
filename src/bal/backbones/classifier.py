"""The frozen classifier H and its backbone h (Sec. 3 and 4.1 of the paper)."""

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from bal.data.batches import split_rows
from bal.errors import BalError, HeadError, ShapeError
from bal.storage import digest

ROOM = 16 << 20  # bytes of the largest tensor inside a network that a processor still passes on through its caches
FEWEST = 16  # rows that are never split: smaller passes gain nothing


class Classifier:
    r"""Any trained ``nn.Module``, read at its last linear layer and never changed.

    .. math:: f = h(x; \theta) \qquad \text{(Eq. feat)}

    f is the input of the head (the last linear layer), the logits are its output. Parameters, buffers, train/eval modes,
    gradients and hooks are the same after a call as before it. A network inside ``DataParallel``, ``DistributedDataParallel`` or
    ``torch.compile`` is taken out of it, and runs on the device where its head is.

    Args:
        model: the trained network, such as those of torchvision, timm and Hugging Face. Its output may be a tensor, a tuple that
            starts with one, an object with ``.logits`` or a dictionary with "logits".
        head: name of the linear layer that makes the logits, as in ``model.named_modules()``; found when not given.
        preprocess: a module applied to every input first, such as :class:`Normalise`; part of the cache key. Where the model
            is on another device, a copy of it is used there.
    """

    def __init__(self, model: nn.Module, *, head: str | None = None, preprocess: nn.Module | None = None) -> None:
        for name, module in (("model", model), ("preprocess", preprocess)):
            if not isinstance(module, nn.Module) and not (name == "preprocess" and module is None):
                raise HeadError(
                    f"{name} must be a torch.nn.Module, got {type(module).__name__}; wrap a function in a small Module"
                )
        self.model = unwrap(model)
        self.preprocess = preprocess
        self._lock = OneAtATime()  # modes and hooks belong to the model, so one thread at a time
        self.head_name = find_head(self.model) if head is None else head
        self.head_given = head is not None
        self.head = get_head(self.model, self.head_name)
        self.source: str | None = None  # the name it was loaded by, for people
        self._rows: dict[tuple[int, ...], int] = {}  # by the shape of an input

    def replica(self) -> "Classifier":
        """The same weights under modules of their own, for a second thread: modes and hooks belong to modules."""
        return copy.deepcopy(self, {id(tensor): tensor for tensor in self._tensors().values()})

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.head.out_features

    @property
    def dim(self) -> int:
        """Size m of the penultimate feature."""
        return self.head.in_features

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.head.weight.device

    def fingerprint(self) -> str:
        """SHA-256 of every parameter and buffer of the model and its preprocessing, saved by its state_dict or not."""
        return digest(self._tensors(), {"head": self.head_name})

    def _tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers of model and preprocessing by name."""
        parts = dict(named_tensors(self.model, "model"))
        return parts if self.preprocess is None else parts | dict(named_tensors(self.preprocess, "preprocess"))

    def head_tensors(self) -> tuple[Tensor, Tensor]:
        """W (classes, m) and b (classes,) of the last layer, float32 copies on the CPU."""
        W = self.head.weight.detach().float().cpu().clone()
        b = torch.zeros(self.classes) if self.head.bias is None else self.head.bias.detach().float().cpu().clone()
        return W, b

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Penultimate features (N, m) and logits (N, classes) of a batch, both float32."""
        with torch.no_grad():
            parts = [self.forward(part) for part in split_rows(x, self._rows_at_once(x))]
        f, logits = zip(*parts, strict=True)
        return torch.cat(f), torch.cat(logits)

    def _rows_at_once(self, x: Tensor) -> int:
        """As many rows as pass through the network within :data:`ROOM`; on a GPU all of them.

        A DenseNet-BC takes images 2 to 3 times as fast by 18 as by 256 (benchmarks/batch_rows.py): larger tensors leave the
        caches, and the system gives their memory back and clears it anew at every layer.
        """
        if self.device.type != "cpu" or len(x) <= FEWEST:
            return max(1, len(x))
        shape = tuple(x.shape[1:])
        if shape not in self._rows:
            with self._lock, eval_mode(self.model, self.preprocess), weighed(self.model) as seen, suppress(ShapeError):
                self._forward(x[:1])  # an input that does not fit is told of by the pass itself
            self._rows[shape] = max(FEWEST, ROOM // max(seen, default=1))
        return self._rows[shape]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same with gradients to ``x``, for detectors that perturb their input."""
        with self._lock, eval_mode(self.model, self.preprocess), capture(self.head) as seen:
            output = self._forward(x)
        if len(seen) != 1:
            raise HeadError(
                f"the layer {self.head_name!r} is used {len(seen)} times in a forward pass, not once; {self._way_out()}"
            )
        f, logits = deciding_token(*seen[0], output)
        self._check(f, logits, output, rows=len(x))
        if logits.dtype in (torch.float16, torch.bfloat16) and type(self.head) is nn.Linear:
            # half-precision logits overflow: redo the last layer in float32
            bias = None if self.head.bias is None else self.head.bias.float()
            logits = F.linear(f.float(), self.head.weight.float(), bias)
        return f.float(), logits.float()

    def _forward(self, x: Tensor) -> Any:
        try:
            return call(self.model, self._prepare(x))
        except (BalError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # whatever a network raises that was not made for these inputs
            raise ShapeError(
                f"the model cannot take inputs of shape {tuple(x.shape)} and dtype {x.dtype}: {error}. "
                f"Give inputs of the size, channels and dtype it was trained on{channels_hint(x)}"
            ) from error

    def _prepare(self, x: Tensor) -> Tensor:
        x = x.to(self.device, copy=True)  # a model that works in place must not reach the user's array
        if x.is_floating_point():
            x = x.to(next(self.model.parameters()).dtype)
        if self.preprocess is None:
            return x
        if any(tensor.device != self.device for _, tensor in named_tensors(self.preprocess, "")):
            self.preprocess = copy.deepcopy(self.preprocess).to(self.device)  # the user's own stays where it is
        prepared: Tensor = self.preprocess(x)
        return prepared

    def _check(self, f: Tensor, logits: Tensor, output: Any, *, rows: int) -> None:
        if f.shape != (rows, self.dim) or logits.shape != (rows, self.classes):
            raise ShapeError(
                f"the layer {self.head_name!r} must give one feature and one logit vector for each input: expected "
                f"({rows}, {self.dim}) and ({rows}, {self.classes}), got {tuple(f.shape)} and {tuple(logits.shape)}"
            )
        if self.head_given:
            return
        final = output_tensor(output)
        if final.shape != logits.shape or not any(
            same_rows(final, form) for form in (logits, logits.log_softmax(1), logits.softmax(1))
        ):
            raise HeadError(f"the last linear layer {self.head_name!r} does not make the model's output; {self._way_out()}")

    def _way_out(self) -> str:
        names = [name for name, module in self.model.named_modules() if isinstance(module, nn.Linear)]
        return f"name the layer that makes the logits with head=..., one of {names}"


def as_classifier(model: "Classifier | nn.Module") -> Classifier:
    """A classifier as it is, a plain module wrapped."""
    return model if isinstance(model, Classifier) else Classifier(model)


class Normalise(nn.Module):
    """(x - mean) / std for each channel, for a network trained on normalised pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, channels, height, width)."""
        return (x - self.mean.to(x.dtype)) / self.std.to(x.dtype)


def named_tensors(module: nn.Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer with its name."""
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        yield f"{prefix}.{name}", tensor


def like(x: Tensor, parameter: Tensor) -> Tensor:
    """Inputs on the device of a parameter and, if they are real numbers, in its precision."""
    return x.to(parameter.device, parameter.dtype if x.is_floating_point() else x.dtype)


def same_rows(a: Tensor, b: Tensor) -> bool:
    """Whether finite rows of two outputs agree, up to rounding."""
    finite = torch.isfinite(a).all(1) & torch.isfinite(b).all(1)
    return torch.allclose(a[finite].float(), b[finite].float(), rtol=1e-2, atol=1e-3)


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside wrappers for several devices or for compiling: copies on other devices would call the hook again."""
    inner = getattr(model, "_orig_mod", None)  # of torch.compile
    if isinstance(model, (nn.DataParallel, DistributedDataParallel)):
        inner = model.module
    return unwrap(inner) if isinstance(inner, nn.Module) else model


def call(model: nn.Module, x: Tensor) -> Any:
    """The output for a batch, given by keyword to models that tell its name, as Hugging Face's do (pixel_values, input_ids)."""
    name = getattr(model, "main_input_name", None)
    return model(**{name: x}) if isinstance(name, str) else model(x)


def deciding_token(f: Tensor, logits: Tensor, output: Any) -> tuple[Tensor, Tensor]:
    """For a head that runs on every token, (N, T, m), where the model answers by one of them: its f (N, m) and logits.

    So do the classifiers of Hugging Face that are made from language models: the last token that is not padding decides.
    """
    if f.ndim != 3:
        return f, logits
    final = output_tensor(output)
    if final.shape != (len(logits), logits.shape[2]):
        return f, logits
    token = (logits - final.unsqueeze(1)).abs().amax(2).argmin(1)  # (N,), the token whose logits are the output
    rows = torch.arange(len(f), device=f.device)
    chosen = f[rows, token], logits[rows, token]
    return chosen if same_rows(chosen[1], final) else (f, logits)


def find_head(model: nn.Module) -> str:
    """Name of the layer that a model in the style of timm calls its classifier, else of the last linear layer defined.

    It is checked against the model's output at every call.
    """
    linear: dict[nn.Module, str] = {module: name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not linear:
        raise HeadError(f"{type(model).__name__} has no nn.Linear layer; BAL reads the input of the last linear layer")
    get_classifier: Any = getattr(model, "get_classifier", None)
    told = get_classifier() if callable(get_classifier) else None
    last = list(linear.values())[-1]
    return linear.get(told, last) if isinstance(told, nn.Linear) else last


def get_head(model: nn.Module, name: str) -> nn.Linear:
    """The linear layer called ``name``."""
    modules = dict(model.named_modules())
    linear = [n for n, module in modules.items() if isinstance(module, nn.Linear)]
    if name not in modules:
        raise HeadError(f"the model has no layer {name!r}; its linear layers are {linear}")
    head = modules[name]
    if not isinstance(head, nn.Linear):
        raise HeadError(f"the layer {name!r} is a {type(head).__name__}, not nn.Linear; the linear layers are {linear}")
    return head


def channels_hint(x: Tensor) -> str:
    """For images that look like (N, height, width, channels), the most common slip.

    >>> channels_hint(torch.zeros(8, 32, 32, 3)), channels_hint(torch.zeros(8, 3, 32, 32))
    ('; these look like channels last: give (N, channels, height, width), x.transpose(0, 3, 1, 2)', '')
    """
    if x.ndim != 4 or x.shape[-1] not in (1, 3) or x.shape[1] in (1, 3):
        return ""
    return "; these look like channels last: give (N, channels, height, width), x.transpose(0, 3, 1, 2)"


def output_tensor(output: Any) -> Tensor:
    """The tensor in a model's output: itself, the first of a tuple, ``.logits`` or ["logits"]."""
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    output = output.get("logits", output) if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(output, Tensor):
        raise HeadError(f"the model returned a {type(output).__name__}; expected a tensor, a tuple of them, or .logits")
    return output


class OneAtATime:
    """A lock; a deep copy of its owner, or one in another process, has a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["OneAtATime"], tuple[()]]:
        return OneAtATime, ()


@contextmanager
def eval_mode(*models: nn.Module | None) -> Iterator[None]:
    """Every module in eval mode inside the block, each back in its own mode after it, even after an error.

    Only the flags are set: a module whose ``train`` does more, such as merging weights, is left alone.
    """
    training = [module for model in models if model is not None for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def capture(layer: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Collect (input, output) of every call of ``layer`` inside the block; the hook is gone after it."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((inputs[0].clone(), output.clone()))  # what comes after may work in place

    hook = layer.register_forward_hook(keep)
    try:
        yield seen
    finally:
        hook.remove()


@contextmanager
def weighed(model: nn.Module) -> Iterator[list[int]]:
    """Collect the bytes of the tensors that go into or come out of modules inside the block; the hooks are gone after it."""
    seen: list[int] = []

    def weigh(_: nn.Module, inputs: Any, output: Any) -> None:
        values = [*inputs, *(output if isinstance(output, (tuple, list)) else [output])]
        seen.extend(value.nbytes for value in values if isinstance(value, Tensor))

    hooks = [module.register_forward_hook(weigh) for module in model.modules()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
