import json

from command import bal


def test_reproduce_draws_a_figure_that_needs_no_data(tmp_path):
    result = bal("reproduce", "fig5", "--out", "r", "--results", "published", cwd=tmp_path, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "published" / "fig5.svg").read_text().startswith("<svg")
    assert "Fig. 5: trivial and hard OOD" in (tmp_path / "r" / "fig5.html").read_text()


def test_reproduce_says_what_it_lacks_and_leaves_it_blank(tmp_path):
    places = {"BAL_DATA": str(tmp_path / "none"), "BAL_WEIGHTS": str(tmp_path / "none")}
    result = bal("reproduce", "table3", "fig4", "--out", "r", cwd=tmp_path, **places)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "densenet-cifar10: not measured: there are no weights densenetbc100_cifar10.pt; set BAL_WEIGHTS" in said
    assert "fig4: not drawn: MNIST is not complete" in said
    assert "0 of 7 lines measured" in said
    lines = json.loads((tmp_path / "r" / "results" / "table3.json").read_text())["lines"]
    assert all(line["mean"] == {} and line["reason"] == "densenet-cifar10 not at hand" for line in lines)


def test_reproduce_refuses_what_it_does_not_know(tmp_path):
    assert bal("reproduce", "table9", cwd=tmp_path).returncode == 2
    assert "name at least one table or figure" in bal("reproduce", cwd=tmp_path).stderr
    assert "Example: BAL_DATA" in bal("reproduce", "--help").stdout
    assert bal("reproduce", "fig5", "--seeds", "0", cwd=tmp_path).returncode == 1
