"""Rules that keep the code readable: imports point one way, and the source holds nothing it must not."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "bal"
FILES = sorted(SOURCE.rglob("*.py"))
LAYERS = [
    "base",
    "data",
    "backbones",
    "features",
    "sampling",
    "discrimination",
    "detectors",
    "export",
    "evaluation",
    "experiments",
    "report",
    "serving",
    "cli",
    "__main__",
]
BASE = {"_version", "errors", "storage", "bundles", "seeding", "progress", "networks", "settings", "calibration", "parallel"}


def layer(module: str) -> int:
    part = module.split(".")[1]
    return LAYERS.index("base" if part in BASE else part)


def imported(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return [name for name in names if name.startswith("bal.")]


@pytest.mark.parametrize("path", [f for f in FILES if f.parent != SOURCE or f.name != "__init__.py"], ids=lambda p: p.name)
def test_imports_point_one_way(path):
    here = layer("bal." + ".".join(path.relative_to(SOURCE).with_suffix("").parts))
    for name in imported(path):
        assert layer(name) <= here, f"{path.name} imports {name}, which stands above it"


@pytest.mark.parametrize(
    "pattern", [r"^\s*print\(", r"\.cuda\(", r"torch\.load\(", r"pickle", r"^\s*assert ", r"except:", "TODO|FIXME|XXX"]
)
def test_the_source_has_no(pattern):
    for path in FILES:
        text = path.read_text()
        restricted = ("from pickle import UnpicklingError", 'torch.load(path, map_location="cpu", weights_only=True)')
        for harmless in ("never pickle", "allow_pickle=False", "unpickle", "use_pickle", *restricted):
            text = text.replace(harmless, "")
        assert not re.search(pattern, text, re.MULTILINE), f"{path.name} has {pattern}"


def test_no_module_is_longer_than_400_lines():
    assert {path.name: n for path in FILES if (n := len(path.read_text().splitlines())) > 400} == {}


def test_every_test_file_mirrors_a_source_file():
    tests = Path(__file__).parent
    for path in tests.rglob("test_*.py"):
        if path.name in {"test_architecture.py", "test_contract.py", "test_oracles.py", "test_docs.py", "test_package.py"}:
            continue
        root = tests.parent if path.parent.name == "benchmarks" else SOURCE
        source = root / path.relative_to(tests).parent / path.name.removeprefix("test_")
        assert source.exists(), f"{path.relative_to(tests)} has no {source.relative_to(root)}"
