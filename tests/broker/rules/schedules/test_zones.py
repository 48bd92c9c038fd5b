"""Zones come from the package tzdata, whatever the host has."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tzdata

from delaylog.broker.rules.schedules.zones import PACKAGED
from delaylog.contract.members import MemberError


def test_the_version_is_the_packages() -> None:
    """Releases have comparable names: a year and a letter."""
    assert PACKAGED.version == tzdata.IANA_VERSION
    assert PACKAGED.version >= "2026a"


def test_names_are_those_of_the_release() -> None:
    """A name is looked up in a list, so it can never be a path."""
    assert PACKAGED.zone("America/Argentina/Buenos_Aires").key.endswith("Buenos_Aires")
    assert PACKAGED.zone("UTC") is PACKAGED.zone("UTC")
    for wrong in ("", "..", "../zones", "Europe", "europe/berlin"):
        with pytest.raises(MemberError, match="has no zone"):
            PACKAGED.zone(wrong)


@pytest.mark.processes
def test_the_hosts_files_are_not_read() -> None:
    """With a path for zone files that has none of them, zones are the same."""
    code = (
        "from delaylog.broker.rules.schedules.instants import next_instant;"
        "from delaylog.broker.rules.schedules.timing import Timing;"
        "print(next_instant(Timing(cron='0 9 * * *', zone='Europe/Berlin'), 1_800_000_000_000))"
    )
    env = {"PYTHONTZPATH": "/nonexistent", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 1_800_086_400_000
