"""Files of secrets: modes, owners and groups that are accepted, and what a refusal says.

The states of the files are given, since a test cannot always give a file to another group.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from delaylog.secret_files import exposure

STRANGE_GROUP = max([os.getegid(), *os.getgroups()]) + 4711


def found(mode: int, group: int, kind: int = stat.S_IFREG) -> os.stat_result:
    """The state of a file of root's, as volumes of Kubernetes have them."""
    return os.stat_result((kind | mode, 1, 1, 1, 0, group, 64, 0, 0, 0))


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700, 0o440, 0o640])
def test_owner_and_own_group_may_read(mode: int) -> None:
    assert exposure("secret", found(mode, os.getegid())) is None


@pytest.mark.parametrize("group", {os.getegid(), *os.getgroups()})
def test_each_group_of_the_process_counts(group: int) -> None:
    assert exposure("secret", found(0o440, group)) is None


@pytest.mark.parametrize(
    ("mode", "group"),
    [
        *((mode, STRANGE_GROUP) for mode in (0o440, 0o640, 0o620)),
        *(
            (mode, os.getegid())
            for mode in (0o444, 0o644, 0o660, 0o460, 0o650, 0o441, 0o604, 0o442)
        ),
    ],
)
def test_others_are_refused(mode: int, group: int) -> None:
    """Other groups, a group that may write, and everybody. Both remedies are named."""
    said = exposure("the secret", found(mode, group)) or ""
    assert f"(mode {mode:o}); run: chmod 600 the secret (or 440" in said
    assert f"its group, now {group}," in said
    assert str(os.getegid()) in said


def test_other_kinds_are_refused() -> None:
    for kind in (stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR):
        assert exposure("secret", found(0o600, 0, kind)) == "is not a regular file"


def test_a_volume_of_kubernetes(tmp_path: Path) -> None:
    """A file behind the links `secret -> ..data/secret` and `..data -> ..TIME`, mode 0440."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "secret").write_text("x")
    (tmp_path / "..2026" / "secret").chmod(0o440)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "secret").symlink_to("..data/secret")
    assert exposure("secret", os.stat(tmp_path / "secret")) is None
