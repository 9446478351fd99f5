import subprocess
import sys

import pytest

import bal


def test_every_public_name_can_be_had():
    for name in bal.__all__:
        assert getattr(bal, name) is not None


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match="it has BAL, Classifier"):
        _ = bal.Bal


def test_the_parts_of_the_package_need_no_import_of_their_own():
    code = "import bal; bal.errors.BalError, bal.detectors.KNN, bal.cli.main"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_bal_does_not_import_torch():
    code = "import sys, bal, bal.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
