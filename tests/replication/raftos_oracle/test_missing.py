"""What the package says where raftos or its cipher is missing.

Method: another Python process in which an import fails.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from delaylog.replication.errors import RAFTOS, ClusterError, RaftosMissingError
from tests.programs import run_program

pytestmark = pytest.mark.processes

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


@pytest.mark.parametrize(
    ("module", "first"), [("raftos", ""), ("cryptography", "{pip} 'cryptography>=42' && ")]
)
def test_what_is_missing_is_named_with_the_command(module: str, first: str) -> None:
    code = [sys.executable, "-W", "error", "-c", WITHOUT.format(module=module)]
    done = run_program(*code)
    assert done.stderr == ""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    assert done.stdout == (
        f"{module} | a cluster elects its leader by raftos, but {module} is not installed; "
        f"run: {first.format(pip=pip)}{pip} --no-deps {RAFTOS}\n"
    )
    assert issubclass(RaftosMissingError, ClusterError)


def test_the_release_is_the_pinned_one() -> None:
    """The file has its hash, so a command without it must not name another one."""
    pins = (Path(__file__).parents[3] / "requirements-cluster.txt").read_text()
    assert re.findall(r"^raftos\S+", pins, re.MULTILINE) == [RAFTOS]
