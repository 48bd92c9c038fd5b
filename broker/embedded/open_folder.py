"""Opens a folder as an embedded broker, with the lock, recovery and limits of a server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, get_args, overload

from delaylog.broker.calls.routes import NAME_RULE, TOPIC_NAME
from delaylog.broker.embedded.async_broker import AsyncEmbeddedBroker
from delaylog.broker.embedded.broker import EmbeddedBroker
from delaylog.broker.embedded.clocks import ManualClock, WallClock
from delaylog.broker.embedded.node import NodeThread, in_thread, is_open_here
from delaylog.broker.embedded.opened import ClockT, Face, Opened
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.clock import Clock
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system import descriptors
from delaylog.broker.host.system.folder_lock import lock_folder, unlock_folder
from delaylog.broker.process.folder_kind import check_folder
from delaylog.client.codec import JSON, Codec, check_codec
from delaylog.client.hooks import Hooks, as_one
from delaylog.storage.files.file_system import hold_spares
from delaylog.storage.files.os_file_system import OsFileSystem, UnsyncedFileSystem
from delaylog.storage.hours.hour_folders import OPEN_HOURS_MAX

Dial: TypeAlias = Literal["always", "everysec", "never"]
DIALS: Final = get_args(Dial)
MANUAL_CHECKPOINT_MS: Final = 86_400_000
"""Interval of checkpoints under a manual clock, on that clock: it may pass a month in a moment."""
LIMITS: Final = Limits(reserve_file_bytes=0)
"""The limits of a server, but without a reserve file for a full disk."""


class OpenKeywords(TypedDict, total=False):
    """Options of `open_broker` and `open_async_broker`.

    `fsync`: "always" (the default) = answers wait for the sync; "everysec" = synced within a
    second; "never" = synced by checkpoints and at the end (under a ManualClock not at all).
    `limits` change limits, named as in `[limits]` of `delaylog.toml`. `namespace`: by default
    "default". `codec` and `hooks` are those of the clients. A restored folder is held: it delivers
    and fires nothing until `release_hold`, or with `release_hold=True`.
    """

    fsync: Dial
    limits: Limits | Mapping[str, int] | None
    namespace: str
    codec: Codec
    hooks: Sequence[Hooks]
    release_hold: bool


@overload
def open_broker(
    path: str | os.PathLike[str], *, clock: None = None, **options: Unpack[OpenKeywords]
) -> EmbeddedBroker[WallClock]: ...
@overload
def open_broker(
    path: str | os.PathLike[str], *, clock: ClockT, **options: Unpack[OpenKeywords]
) -> EmbeddedBroker[ClockT]: ...
def open_broker(
    path: str | os.PathLike[str], *, clock: Any = None, **options: Unpack[OpenKeywords]
) -> EmbeddedBroker[Any]:
    """Open a data folder, creating it if needed, and serve it in this process.

    Raises ConfigError for a folder that cannot be served (it is in use, a backup, or of a node of a
    cluster), ValueError or TypeError for wrong arguments, CorruptionError for a damaged folder.
    """
    return EmbeddedBroker(_open(path, _clock(clock), **options))


@overload
def open_async_broker(
    path: str | os.PathLike[str], *, clock: None = None, **options: Unpack[OpenKeywords]
) -> AbstractAsyncContextManager[AsyncEmbeddedBroker[WallClock]]: ...
@overload
def open_async_broker(
    path: str | os.PathLike[str], *, clock: ClockT, **options: Unpack[OpenKeywords]
) -> AbstractAsyncContextManager[AsyncEmbeddedBroker[ClockT]]: ...
@asynccontextmanager
async def open_async_broker(
    path: str | os.PathLike[str], *, clock: Any = None, **options: Unpack[OpenKeywords]
) -> AsyncIterator[AsyncEmbeddedBroker[Any]]:
    """The same for an event loop, by `async with`; reading the folder does not block the loop."""
    opened = await in_thread(partial(_open, path, _clock(clock), **options))
    async with AsyncEmbeddedBroker(opened) as broker:
        yield broker


def _open(
    path: str | os.PathLike[str],
    clock: Clock,
    *,
    fsync: Dial = "always",
    limits: Limits | Mapping[str, int] | None = None,
    release_hold: bool = False,
    **seen: Any,
) -> Opened[Any]:
    if fsync not in DIALS:
        raise ValueError(f"fsync is one of {', '.join(DIALS)}, not {fsync!r}")
    face = _face(**seen)
    folder = os.fspath(path)
    if not isinstance(folder, str) or not folder:
        raise ValueError(f"the path of a folder is a non-empty string, not {folder!r}")
    hold_spares()
    # The program may change its working directory later.
    folder = str(Path(folder).absolute())
    manual = isinstance(clock, ManualClock)
    wanted = _limits(limits)
    # Under a wall clock checkpoints are always synced, as in a server.
    files = UnsyncedFileSystem() if manual and fsync == "never" else OsFileSystem()
    fault = wanted.clock_fault(clock.now_ms())
    if fault is not None:
        raise ConfigError(fault)
    check_folder(folder, member=False)
    if os.path.isdir(folder) and is_open_here(folder):
        raise ConfigError(
            f"data folder {folder} is in use by this very process, which has opened it already: "
            "share that broker, which any thread may call, or close it first"
        )
    lock = lock_folder(folder)
    try:
        setup = Setup(
            random=Random(),
            limits=wanted,
            open_hours_max=min(OPEN_HOURS_MAX, descriptors.embedded().hours),
            hold=False if release_hold else None,
        )
        engine = Engine(files, folder, setup, now_ms=clock.now_ms())
        if manual:
            engine.upkeep.every_ms = engine.upkeep.idle_ms = MANUAL_CHECKPOINT_MS
        clock.hold_from(engine.started_ms)
    except BaseException:
        unlock_folder(lock)
        raise
    thread = NodeThread(engine, clock, lock, fsync=fsync)
    if isinstance(clock, ManualClock):
        try:
            clock.attach(thread)
        except BaseException:
            thread.close()
            raise
    return Opened(thread, clock, face)


def _face(*, namespace: str = "default", codec: Codec = JSON, hooks: Sequence[Hooks] = ()) -> Face:
    check_codec(codec)
    if not isinstance(namespace, str) or not TOPIC_NAME.match(namespace):
        raise ValueError(f"a namespace is {NAME_RULE}, not {namespace!r}")
    return Face(namespace, codec, as_one(hooks))


def _clock(clock: object) -> Clock:
    if clock is None:
        return WallClock()
    if isinstance(clock, (WallClock, ManualClock)):
        return clock
    raise TypeError(f"a clock is a WallClock or a ManualClock, not {type(clock).__name__}")


def _limits(given: Limits | Mapping[str, int] | None) -> Limits:
    if isinstance(given, Limits):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"limits are a mapping of names to integers, not {type(given).__name__}")
    known = {each.name for each in fields(Limits)}
    for name, value in (given or {}).items():
        if name not in known:
            raise ValueError(f"unknown limit {name!r}; known are {', '.join(sorted(known))}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"limits.{name} must be an integer, not {value!r}")
    return replace(LIMITS, **dict(given or {}))
