"""pytest plugin: a live broker, or an embedded one with a clock that the test moves.

pytest loads it wherever delaylog is installed. So it imports nothing of delaylog before a test
requests a fixture, and does nothing in a project without such tests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from delaylog.broker.embedded import AsyncEmbeddedBroker, EmbeddedBroker, ManualClock
    from delaylog.broker.testing.live_broker import LiveBroker

MARKER: Final = "delaylog"
LIVE_OPTIONS: Final = frozenset(("options", "limits"))
EMBEDDED_OPTIONS: Final = frozenset(("start", "fsync", "limits", "namespace"))
_BROKERS: Final = pytest.StashKey["list[LiveBroker]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of this plugin."""
    config.addinivalue_line(
        "markers",
        "delaylog(options=(), limits={}, start=None, fsync='never', namespace='default'): how the "
        "fixtures delaylog_broker, delaylog_embedded and delaylog_embedded_async create brokers",
    )


@pytest.fixture
def delaylog_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveBroker]:
    """A separate broker for each test: a child process on a free port and an empty folder.

    It has `url`, `client()`, `kill()`, `stop()`, `restart()`. `@pytest.mark.delaylog` sets
    `options` of `delaylog serve` and `limits`. The report of a failure has the end of its log.
    """
    wanted = _wanted(request)
    yield from _live(request.node, tmp_path_factory.mktemp("delaylog"), wanted)


@pytest.fixture(scope="session")
def delaylog_broker_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveBroker]:
    """One broker for all tests that request it: each must use a separate topic or namespace."""
    yield from _live(request.session, tmp_path_factory.mktemp("delaylog"), {})


@pytest.fixture
def delaylog_embedded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker[ManualClock]]:
    """A broker in this process, with a clock that the test moves: `.clock.advance(days=30)`.

    `@pytest.mark.delaylog` sets the `start` of the clock, `fsync`, `limits` and `namespace`.
    """
    from delaylog.extras import needed_by

    with needed_by("the fixture delaylog_embedded"):
        from delaylog.broker.embedded import open_broker

    with open_broker(tmp_path_factory.mktemp("delaylog"), **_embedded(request)) as broker:
        yield broker


@pytest.fixture
def delaylog_embedded_async(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AbstractAsyncContextManager[AsyncEmbeddedBroker[ManualClock]]:
    """The same for an event loop: `async with delaylog_embedded_async as broker:`.

    The broker belongs to the loop that enters the block, whichever plugin runs it.
    """
    from delaylog.extras import needed_by

    with needed_by("the fixture delaylog_embedded_async"):
        from delaylog.broker.embedded import open_async_broker

    return open_async_broker(tmp_path_factory.mktemp("delaylog"), **_embedded(request))


def _embedded(request: pytest.FixtureRequest) -> Any:
    """The options of an embedded broker."""
    from delaylog.broker.embedded import ManualClock

    wanted = _wanted(request)
    start = wanted.pop("start", None)
    options = {name: wanted[name] for name in wanted.keys() & EMBEDDED_OPTIONS}
    # No test needs this folder after a crash, so writes need not wait for the disk.
    clock = ManualClock() if start is None else ManualClock(start)
    return {"fsync": "never", **options, "clock": clock}


def _live(
    node: pytest.Item | pytest.Session, folder: Path, wanted: dict[str, Any]
) -> Iterator[LiveBroker]:
    from delaylog.broker.testing.live_broker import LiveBroker

    # pytest keeps the folders of tests for a while, so they must not reserve disk space.
    limits = {"reserve_file_bytes": 0, **wanted.get("limits", {})}
    broker = LiveBroker(folder, options=wanted.get("options", ()), limits=limits)
    node.stash.setdefault(_BROKERS, []).append(broker)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def _wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of all markers of a test; for the same option the nearest marker wins."""
    wanted: dict[str, Any] = {}
    known = LIVE_OPTIONS | EMBEDDED_OPTIONS
    for marker in request.node.iter_markers(MARKER):
        if marker.args or not set(marker.kwargs) <= known:
            given = [*map(repr, marker.args), *sorted(set(marker.kwargs) - known)]
            raise pytest.UsageError(
                f"@pytest.mark.delaylog takes {', '.join(sorted(known))} by name, not "
                f"{', '.join(given)}"
            )
        wanted = {**marker.kwargs, **wanted}
    return wanted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001 (the form of the hook)
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of its brokers' logs to the report of a failed test."""
    report = yield
    if report.failed:
        uses_shared = "delaylog_broker_session" in getattr(item, "fixturenames", ())
        shared = item.session.stash.get(_BROKERS, []) if uses_shared else []
        for broker in [*item.stash.get(_BROKERS, []), *shared]:
            report.sections.append((f"delaylog broker at {broker.url}", broker.log_tail()))
    return report
