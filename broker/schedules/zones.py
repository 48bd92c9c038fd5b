"""Time zones of the package tzdata, with their version.

The host's zone files are never read: two nodes of a cluster must agree on an instant, and a log
must say which release of the zones its instants were computed with.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

import tzdata

from delaylog.storage.errors import MemberError


class Zones:
    """Zones by name, of one release."""

    def __init__(self, version: str, names: frozenset[str], load: Callable[[str], ZoneInfo]):
        self.version = version
        """The release of the IANA database, such as `2026f`. Later releases compare greater."""
        self.names = names
        self._load = load
        self._loaded: dict[str, ZoneInfo] = {}

    def zone(self, name: str) -> ZoneInfo:
        """The zone. Raises MemberError for a name that this release does not have."""
        found = self._loaded.get(name)
        if found is None:
            if name not in self.names:
                raise MemberError(self.lack(name), field="zone")
            found = self._loaded[name] = self._load(name)
        return found

    def lack(self, name: str) -> str:
        """What is wrong with a stored schedule whose zone this release does not have."""
        return (
            f"tzdata {self.version} of this broker has no zone {name!r}: such a schedule waits, "
            "and fires once a broker with the zone leads. Install a tzdata that has it, or change "
            "the zone"
        )


def _load(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("ascii").split())


PACKAGED: Final = Zones(tzdata.IANA_VERSION, _names(), _load)
"""The zones of the installed package."""
