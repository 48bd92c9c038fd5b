"""Time zones of the package tzdata, with their version.

The host's zone files are never read: two nodes of a cluster must agree on an instant, and a log
must say which release of the zones its instants were computed with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

import tzdata

from delaylog.contract.members import MemberError


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

    def what_is_no_zone(self, name: str) -> str:
        """What is wrong with a name that is no zone, and what was probably meant."""
        return f"{name!r} is no zone of tzdata {self.version}{meant_zone(name, self.names)}"

    def lack(self, name: str) -> str:
        """What is wrong with a stored schedule whose zone this release does not have."""
        return (
            f"tzdata {self.version} of this broker has no zone {name!r}: such a schedule waits, "
            "and fires once a broker with the zone leads. Install a tzdata that has it, or change "
            "the zone"
        )


def meant_zone(name: str, names: frozenset[str]) -> str:
    """What to write instead of a name that is no zone, behind a colon; an example at worst."""
    offset = _OFFSET.fullmatch(name.strip())
    if offset is not None:
        return _fixed(offset, names)
    if name.endswith(("Standard Time", "Daylight Time")):
        return f": that is a name of Windows, write {_PLACE}"
    # A city alone is often all that a person writes.
    known = {each.lower().rpartition("/")[2]: each for each in sorted(names, reverse=True)}
    known |= {each.lower(): each for each in names}
    if _ABBREVIATION.fullmatch(name) and name.lower() not in known:
        return f": an abbreviation has several meanings, write {_PLACE}"
    found = get_close_matches(name.lower().replace(" ", "_"), known, n=1, cutoff=0.7)
    return f": did you mean {known[found[0]]}?" if found else ", such as Europe/Berlin"


_OFFSET: Final = re.compile(
    r"(?P<prefix>(?:etc/)?(?:gmt|utc|ut|z))? ?(?P<sign>[+-])(?P<h>[0-9]{1,2})"
    r"(?::?(?P<m>[0-9]{2}))?",
    re.IGNORECASE | re.ASCII,
)
_ABBREVIATION: Final = re.compile(r"[A-Z]{2,5}")
_PLACE: Final = "the zone of a place, such as Europe/Berlin"


def _fixed(offset: re.Match[str], names: frozenset[str]) -> str:
    """The zones of an offset. The signs of the zones Etc/GMT are those of POSIX."""
    hours, minutes = int(offset["h"]), int(offset["m"] or 0)
    if hours == minutes == 0:
        return ": write UTC"
    east = offset["sign"] == "+"
    ahead, behind = f"Etc/GMT-{hours}", f"Etc/GMT+{hours}"
    meant, other = (ahead, behind) if east else (behind, ahead)
    side, opposite = ("ahead of", "behind") if east else ("behind", "ahead of")
    if minutes or meant not in names:
        return f": no zone is named by such an offset, write {_PLACE}"
    if not offset["prefix"] or offset["m"] or other not in names:
        return f": write {meant}, which is {hours} h {side} UTC (zones Etc have reversed signs)"
    return (
        f": write {meant} for {hours} h {side} UTC, as Java, Quartz and ISO 8601 mean it, or "
        f"{other} for {hours} h {opposite} UTC, as POSIX means it"
    )


def _load(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("ascii").split())


PACKAGED: Final = Zones(tzdata.IANA_VERSION, _names(), _load)
"""The zones of the installed package."""
