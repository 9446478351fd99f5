"""A classifier from a file of ``torch.export.save``, a .pt2, read at its last linear layer like any other.

A .pt2 is a program: name one that you trust, as you would a Python module. Pickles and compiled libraries inside it are refused
all the same, though torch itself would run them.
"""

import json
import re
import warnings
import zipfile
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import fx, nn

from bal.errors import HeadError, StorageError

SUFFIX = ".pt2"
CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
SAMPLE = "data/sample_inputs/model.pt"
HARMLESS = re.compile(
    r"data/weights/weight_\d+|data/constants/tensor_\d+|models/model\.json|extra/.+|"
    r"archive_format|archive_version|byteorder|version|\.data/\w+|" + "|".join(map(re.escape, (*CONFIGS, SAMPLE)))
)
DAMAGED = (
    UnpicklingError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    AttributeError,
    AssertionError,
    zipfile.BadZipFile,
)
TRAINING_FLAG = {torch.ops.aten.dropout.default: 2, torch.ops.aten.batch_norm.default: 5}  # place among the arguments


def restricted_load(path: Path | BytesIO) -> Any:
    """What torch's restricted unpickler reads: tensors and plain containers; anything that could run code is an error."""
    return torch.load(path, map_location="cpu", weights_only=True)


def read_program(path: Path) -> fx.GraphModule:
    """The exported network as a module whose last linear layer is an ``nn.Linear`` under its own name."""
    if not path.is_file():
        raise StorageError(f"there is no file {path}; write it with torch.export.save(torch.export.export(...), path)")
    content = path.read_bytes()
    try:
        refuse_code(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations inside torch
            network: fx.GraphModule = torch.export.load(BytesIO(content)).module()
    except DAMAGED as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(
            f"{path} is no exported program of tensors and operators alone ({reason}); export the network again with torch "
            f"{torch.__version__}"
        ) from error
    restore_head(network, path)
    return network


def refuse_code(content: bytes) -> None:
    """Refuse an archive with anything that torch would unpickle or load as a library."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        names = [name.partition("/")[2] for name in archive.namelist()]
        if len(set(names)) != len(names) or len({name.partition("/")[0] for name in archive.namelist()}) != 1:
            raise ValueError("two of its members have one name")
        if strange := [name for name in names if not HARMLESS.fullmatch(name)]:
            raise ValueError(f"it holds {strange[0]}")
        members = dict(zip(names, archive.namelist(), strict=True))
        for name in CONFIGS:
            entries = json.loads(archive.read(members[name]))["config"]
            if unsafe := [key for key, entry in entries.items() if entry["use_pickle"]]:
                raise ValueError(f"it holds {unsafe[0]} in a form that can run code")
        restricted_load(BytesIO(archive.read(members[SAMPLE])))


def restore_head(network: fx.GraphModule, path: Path) -> None:
    """Put an ``nn.Linear`` with the same weights in the place of the last linear operator."""
    nodes = list(network.graph.nodes)
    if any(node.target in TRAINING_FLAG and node.args[TRAINING_FLAG[node.target]] for node in nodes):
        raise HeadError(f"{path} was exported in training mode; call model.eval() before torch.export.export")
    linear = [node for node in nodes if node.target is torch.ops.aten.linear.default]
    if not linear or any(argument is not None and argument.op != "get_attr" for argument in linear[-1].args[1:]):
        raise HeadError(f"{path} has no linear layer with weights of its own; export it without run_decompositions")
    f, weight, bias = (*linear[-1].args, None)[:3]
    W = get_parameter(network, weight)
    head = nn.Linear(W.shape[1], W.shape[0], bias=bias is not None, device="meta")
    head.weight = W
    if bias is not None:
        head.bias = get_parameter(network, bias)
    name = weight.target.rpartition(".")[0] or "head"
    network.add_submodule(name, head)
    with network.graph.inserting_before(linear[-1]):
        linear[-1].replace_all_uses_with(network.graph.call_module(name, (f,)))
    network.graph.erase_node(linear[-1])
    network.recompile()


def get_parameter(network: fx.GraphModule, node: fx.Node) -> nn.Parameter:
    """The parameter that a node of the graph reads."""
    tensor = network.get_parameter(str(node.target))
    return nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)
