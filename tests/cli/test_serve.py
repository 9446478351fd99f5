"""bal serve; the server itself is in tests/serving."""

import sys
from dataclasses import replace

import pytest

from bal.serving.limits import Limits
from command import bal_here

FIT = ("fit", "--classifier", "my_model:build", "--train", "train.npz", "--detector", "energy", "--out", "d")
SERVE = ("serve", "d", "--classifier", "my_model:build")


@pytest.fixture
def here(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    monkeypatch.delenv("BAL_TOKEN", raising=False)
    bal_here(monkeypatch, capsys, *FIT)
    return lambda *arguments: bal_here(monkeypatch, capsys, *arguments)


@pytest.fixture
def served(monkeypatch):
    """What would be served, without serving it."""
    calls = []
    monkeypatch.setattr("bal.serving.server.serve", lambda service, **where: calls.append((service, where)))
    return calls


def test_the_defaults_are_those_of_the_server(here, served):
    """They are written twice, so that help does not wait for torch."""
    here(*SERVE)
    limits = served[0][0].limits
    assert replace(limits, workers=1) == Limits()


def test_the_detector_is_served_by_the_name_of_its_file_within_the_limits_given(here, served):
    assert here(*SERVE, "--max-batch", "8", "--queue", "16", "--deadline", "2", "--drain", "3", "--port", "0")[0] == 0
    [(service, where)] = served
    assert (service.model.name, service.model.kind) == ("d", "energy")
    limits = service.limits
    assert (limits.max_batch, limits.queue, limits.deadline, limits.drain_seconds) == (8, 16, 2.0, 3.0)
    assert where == {"host": "127.0.0.1", "port": 0, "token": None}


def test_a_public_address_without_a_token_is_refused_and_with_one_it_is_not(here, served, workspace):
    code, _, complaint = here(*SERVE, "--host", "0.0.0.0")  # noqa: S104
    assert code == 1
    assert "can be reached from other machines" in complaint
    assert not served
    (workspace / "token").write_text("a-token-of-enough-letters\n")
    assert here(*SERVE, "--host", "0.0.0.0", "--token-file", "token")[0] == 0  # noqa: S104
    assert served[0][1]["token"] == "a-token-of-enough-letters"  # noqa: S105
    assert here(*SERVE, "--host", "0.0.0.0", "--allow-public")[0] == 0  # noqa: S104


def test_a_token_on_the_command_line_is_not_understood(here):
    assert here(*SERVE, "--token", "a-token-of-enough-letters")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--port", "99999"), "port must be"),
        (("--max-batch", "0"), "max_batch must be"),
        (("--name", "a/b"), "the name of a model"),
        (("--threads", "0"), "--threads must be"),
    ],
)
def test_nonsense_is_refused_before_anything_is_served(here, served, arguments, words):
    code, _, complaint = here(*SERVE, *arguments)
    assert code == 1
    assert words in complaint
    assert not served


def test_the_extra_that_is_missing_is_named(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    code, _, complaint = here(*SERVE)
    assert code == 1
    assert "pip install 'bal-ood[serve]'" in complaint


def test_the_classifier_must_be_named(here):
    assert "name it: --classifier my_model:build" in here("serve", "d")[2]
