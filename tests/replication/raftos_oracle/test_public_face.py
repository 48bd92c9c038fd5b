"""The names that the package offers, and what it says where raftos or its cipher is missing.

Method: another Python process in which an import fails.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from delaylog.replication import raftos_oracle
from delaylog.replication.errors import ClusterError, RaftosMissingError

WITHOUT = """
import sys
sys.modules[{module!r}] = None
import delaylog.replication
assert "raftos" not in sys.modules or {module!r} == "raftos"
from delaylog.replication.errors import RaftosMissingError
try:
    import delaylog.replication.raftos_oracle
except RaftosMissingError as error:
    print(error.module, "|", error)
"""


def test_public_names() -> None:
    assert raftos_oracle.__all__ == sorted(raftos_oracle.__all__)
    assert all(hasattr(raftos_oracle, name) for name in raftos_oracle.__all__)
    assert len(raftos_oracle.__all__) == 6


@pytest.mark.parametrize("module", ["raftos", "cryptography"])
def test_what_is_missing_is_named_with_the_command(module: str) -> None:
    code = [sys.executable, "-W", "error", "-c", WITHOUT.format(module=module)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout == (
        f"{module} | a cluster elects by raftos, but {module} is missing: "
        "pip install 'cryptography>=42' && pip install --no-deps raftos==0.2.6\n"
    )
    assert issubclass(RaftosMissingError, ClusterError)
