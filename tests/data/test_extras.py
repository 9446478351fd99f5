import sys

import pytest

from bal.data.extras import import_extra
from bal.errors import DataError


@pytest.mark.parametrize("module", ["pyarrow", "pooch"])
def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)  # importing it raises ImportError
    with pytest.raises(DataError, match=rf"needs {module}.*pip install 'bal-ood\[data\]'"):
        import_extra(module)
