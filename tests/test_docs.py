"""The documents tell the truth: their Python and sh blocks run, their links lead somewhere, the functions they name exist."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from command import bal_here

ROOT = Path(__file__).parent.parent
HOWTO = ROOT / "docs" / "howto"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    return re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_every_page_runs_from_top_to_bottom(page, tiny_model, tiny_images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    x = tiny_images[0]
    namespace = {"model": tiny_model, "train": tiny_images, "held_out": x, "images": x[:5]}  # what README takes as given
    for language, code in blocks(page):
        if language == "python":
            exec(compile(code, page.name, "exec"), namespace)  # noqa: S102
            continue
        for line in code.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "bal", f"{page.name} has the line {line!r}, which is not run here; label its block text"
            exit_code, _, complaint = bal_here(monkeypatch, capsys, *arguments)
            assert exit_code == 0, complaint


@pytest.mark.parametrize(
    "name",
    [
        "my-torchvision-model",
        "my-hugging-face-model",
        "my-own-features",
        "my-folder-of-images",
        "choose-a-false-alarm-rate",
        "ship-with-onnx",
    ],
)
def test_there_is_a_how_to_page_that_runs_for_every_common_task(name):
    assert HOWTO / f"{name}.md" in PAGES
    assert blocks(HOWTO / f"{name}.md")


@pytest.mark.parametrize("page", sorted(HOWTO.glob("*.md")), ids=lambda p: p.name)
def test_every_block_of_a_how_to_page_is_run_or_labelled_text(page):
    fences = re.findall(r"^[ >]*```(.*)$", page.read_text(), re.MULTILINE)
    assert set(fences[::2]) <= {"python", "sh", "text"}, f"{page.name} has the blocks {fences[::2]}"
    assert not any(fences[1::2])
    assert sum(label in ("python", "sh") for label in fences[::2]) == len(blocks(page)), "an indented block is not run"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_function_and_test_named_in_the_equations_exists():
    text = (ROOT / "docs" / "equations.md").read_text()
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name, path in re.findall(r"\[`([\w.]+)`\]\(\.\./(src/[\w/]+\.py)\)", text):
        assert re.search(rf"(def|class) {name.split('.')[-1]}\b", (ROOT / path).read_text()), f"{path} has no {name}"
    for name in re.findall(r"`(test_\w+)…?`", text):
        assert f"def {name}" in tests, name
    for name in re.findall(r"`(_?[a-z]+(?:_[a-z0-9]+)+)`", text):
        assert re.search(rf"def {name}\b", source + tests) or name in source, name
