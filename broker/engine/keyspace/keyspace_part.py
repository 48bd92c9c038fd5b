"""The keyspace of Redis clients as the engine sees it: a leaf, `delaylog.broker.keyspace`.

The engine logs the keyspace's effects, replays them, and keeps its snapshots, without knowing what
is in them. Where the leaf is not installed a keyspace is always empty, and a folder that has one is
refused by the leaf's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from random import Random
from typing import Any, Final, Protocol, cast

from delaylog.extras import REDIS
from delaylog.storage.errors import MissingPartError, OlderFormatError

_MODULE: Final = "delaylog.broker.keyspace.engine_part"
Effects = list[list[bytes]]


class AnyKeyspace(Protocol):
    """All data that Redis clients see."""

    now_ms: int
    effects: Effects
    """Effects that are not in the log yet."""
    garbage: list[Any]
    condemned: bool

    @property
    def is_ahead(self) -> bool:
        """Whether memory has, or may have, changes that are not in the log."""

    def take_effects(self) -> Effects:
        """Remove and return the effects for one frame."""

    def next_expiry_ms(self) -> int | None:
        """The time of the next call of `expire_due`, or None."""

    def begin_expiring(self) -> None:
        """Remove expired keys from now on."""

    def stop_expiring(self) -> None:
        """Remove no expired keys from now on."""

    def expire_due(self, now_ms: int) -> int:
        """Remove some expired keys; returns their number."""

    def inherit(self, dropped: Any) -> None:
        """Free the values of a keyspace that is no longer used, in slices."""

    def free_slice(self) -> bool:
        """Free some removed values; returns whether more are left."""


class Summary(Protocol):
    """Counts of a snapshot."""

    position: int
    size: int


class CorruptSnapshot(Exception):
    """A snapshot file is corrupt. The keyspace has a class of its own with these attributes."""

    what: str
    offset: int


class SnapshotCheck(Protocol):
    """Checks a snapshot chunk by chunk without building its values."""

    summary: Summary

    def next(self) -> dict[str, Any] | None:
        """Describe the next chunk; None after the last. Raises CorruptSnapshot."""


class KeyspacePart(Protocol):
    """The leaf."""

    Keyspace: Callable[[Random], AnyKeyspace]
    apply_effects: Callable[[AnyKeyspace, Effects], None]
    """Run effects on a keyspace, without clock, checks or replies. Raises UnknownEffectError."""
    load_snapshot: Callable[[AnyKeyspace, Callable[[int], bytes]], Summary]
    """Fill an empty keyspace from a file. Raises CorruptSnapshot."""
    write_snapshot: Callable[[AnyKeyspace, int, Callable[[bytes], None]], Summary]
    ChunkCheck: Callable[[Callable[[int], bytes]], SnapshotCheck]
    SnapshotError: type[CorruptSnapshot]
    UnknownEffectError: type[Exception]


class _NoKeyspace:
    """A keyspace that stays empty."""

    condemned = is_ahead = False

    def __init__(self, random: Random) -> None:  # noqa: ARG002 (nothing is chosen)
        self.now_ms = 0
        self.effects: Effects = []
        self.garbage: list[Any] = []

    def take_effects(self) -> Effects:
        return []

    def next_expiry_ms(self) -> int | None:
        return None

    def begin_expiring(self) -> None:
        """No key expires."""

    def stop_expiring(self) -> None:
        """No key expires."""

    def expire_due(self, now_ms: int) -> int:  # noqa: ARG002 (no key expires)
        return 0

    def inherit(self, dropped: Any) -> None:
        """There is nothing to free."""

    def free_slice(self) -> bool:
        return False


def refuse(*_: Any) -> Any:
    """Refuse a folder with a keyspace."""
    raise MissingPartError("the folder has data of Redis clients", REDIS)


class _NoPart:
    """Stands for the leaf where it is not installed."""

    Keyspace = _NoKeyspace
    apply_effects = load_snapshot = write_snapshot = ChunkCheck = staticmethod(refuse)
    SnapshotError = CorruptSnapshot
    UnknownEffectError = CorruptSnapshot


@cache
def keyspace_part() -> KeyspacePart:
    """The leaf, or what stands for it."""
    try:
        part: Any = import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name not in (_MODULE, _MODULE.rpartition(".")[0]):
            raise
        part = _NoPart
    return cast("KeyspacePart", part)


def apply_effects(keyspace: AnyKeyspace, effects: Effects) -> None:
    """Run effects of the log. Raises OlderFormatError for a command that no longer exists."""
    part = keyspace_part()
    try:
        part.apply_effects(keyspace, effects)
    except part.UnknownEffectError as error:
        raise OlderFormatError(str(error)) from None


def is_missing() -> bool:
    """Whether the leaf is not installed."""
    return keyspace_part() is cast("KeyspacePart", _NoPart)
