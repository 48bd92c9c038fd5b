"""What both type checkers infer of the public API: return types, and calls that they refuse.

The programs beside this file say it by `assert_type`, and by `type: ignore` where a call is wrong:
an unused one is an error. They are not run.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.typecheckers import mypy, pyright

HERE: Final = Path(__file__).parent
NAMES: Final = ("asynchronous.py", "either.py", "embedded.py", "threads.py")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """As a program elsewhere, which has delaylog installed."""
    for name in NAMES:
        shutil.copy(HERE / name, tmp_path / name)
    return tmp_path


def test_every_program_is_checked() -> None:
    found = sorted(path.name for path in HERE.glob("*.py"))
    assert found == sorted([*NAMES, Path(__file__).name])


def test_mypy_infers_the_types(programs: Path) -> None:
    mypy(programs, NAMES)


def test_pyright_infers_the_types(programs: Path) -> None:
    pyright(programs, NAMES, reportUnnecessaryTypeIgnoreComment=True)


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_wrong_type_is_found(checker: object, tmp_path: Path) -> None:
    program = "from delaylog import Client\nprint(Client().receive('mails')[0].txet)\n"
    (tmp_path / "wrong.py").write_text(program)
    assert callable(checker)
    with pytest.raises(AssertionError, match="txet"):
        checker(tmp_path, ["wrong.py"])
