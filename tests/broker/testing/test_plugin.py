"""The pytest plugin, in test suites of their own: each runs in a process, as a user's would."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Final

import pytest

from tests.programs import run_program

pytest_plugins = ["pytester"]

PLUGIN: Final = "delaylog.broker.testing.plugin"


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Runs a test file under the plugin, strictly, and gives its result."""
    installed = entry_points(group="pytest11", name="delaylog")
    options = [] if installed else ["-p", PLUGIN]

    def go(source: str, *more: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        strict = [
            "--strict-markers",
            "-W",
            "error",
            "-p",
            "no:schemathesis",
            "-p",
            "no:cacheprovider",
        ]
        return pytester.runpytest_subprocess(*options, *strict, *more, timeout=120)

    return go


def test_a_live_broker_survives_what_a_test_does_to_it(run) -> None:
    run(
        """
        from datetime import timedelta

        def test_it(delaylog_broker):
            with delaylog_broker.client() as client:
                client.send_columns("t", [b"x"], delay_ms=0)
                url = delaylog_broker.url
                delaylog_broker.kill()
                assert not delaylog_broker.running
                delaylog_broker.start()
                assert delaylog_broker.url == url
                (message,) = client.receive("t", wait=timedelta(seconds=5))
                assert client.ack(message) == ["done"]
                delaylog_broker.restart()
                assert client.stats("t").counts.acked == 1
                assert delaylog_broker.stop() == 0
        """
    ).assert_outcomes(passed=1)


def test_each_test_has_a_broker_of_its_own_and_all_may_share_one(run) -> None:
    run(
        """
        def test_one(delaylog_broker, delaylog_broker_session):
            for broker in (delaylog_broker, delaylog_broker_session):
                broker.client().send_columns("t", [b"x"], delay_ms=60_000)

        def test_other(delaylog_broker, delaylog_broker_session):
            assert delaylog_broker.client().topics() == []
            (topic,) = delaylog_broker_session.client().topics()
            assert topic.counts.waiting == 1
        """
    ).assert_outcomes(passed=2)


def test_the_marker_makes_brokers_another_way(run) -> None:
    run(
        """
        import pytest
        from datetime import datetime, UTC
        from delaylog.client import TooLarge

        pytestmark = pytest.mark.delaylog(limits={"body_bytes_max": 3})

        @pytest.mark.delaylog(start=datetime(2031, 1, 1, tzinfo=UTC), namespace="n")
        def test_embedded(delaylog_embedded):
            assert delaylog_embedded.clock.now.year == 2031
            with pytest.raises(TooLarge):
                delaylog_embedded.send("t", "four")

        @pytest.mark.delaylog(options=["--log-level", "debug"])
        def test_live(delaylog_broker):
            with pytest.raises(TooLarge):
                delaylog_broker.client().send_columns("t", [b"four"], delay_ms=0)
        """
    ).assert_outcomes(passed=2)


def test_an_embedded_broker_moves_thirty_days(run) -> None:
    run(
        """
        from datetime import timedelta

        def test_it(delaylog_embedded):
            delaylog_embedded.send("reminders", "pay", delay=timedelta(days=30))
            delaylog_embedded.clock.advance(days=30, ms=-1)
            assert delaylog_embedded.receive("reminders") == []
            delaylog_embedded.clock.advance(ms=1)
            (message,) = delaylog_embedded.receive("reminders")
            assert message.text == "pay"
        """
    ).assert_outcomes(passed=1)


def test_an_embedded_broker_of_an_event_loop(run) -> None:
    """It belongs to the loop that enters it, so any plugin, or none, may run the test."""
    run(
        """
        import asyncio
        import pytest
        from datetime import datetime, timedelta, UTC

        @pytest.mark.delaylog(start=datetime(2031, 1, 1, tzinfo=UTC), namespace="n")
        def test_it(delaylog_embedded_async):
            async def scene():
                async with delaylog_embedded_async as broker:
                    assert broker.clock.now.year == 2031
                    await broker.timer("cart").set(timedelta(minutes=1))
                    assert await broker.receive("timers") == []
                    await broker.advance(minutes=1)
                    assert len(await broker.receive("timers")) == 1

            asyncio.run(scene())

        def test_that_does_not_enter_it(delaylog_embedded_async):
            pass
        """
    ).assert_outcomes(passed=2)


def test_a_failure_shows_what_the_broker_logged(run) -> None:
    result = run(
        """
        def test_it(delaylog_broker):
            assert delaylog_broker.url == "elsewhere"
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([".*delaylog broker at http://127.0.0.1:.*", ".*serving.*"])


def test_a_broker_that_does_not_start_says_why(run) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.delaylog(limits={"colour": 1})
        def test_it(delaylog_broker):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no limit 'colour'*"])


@pytest.mark.parametrize("marker", ["colour=1", "'positional'"])
def test_a_wrong_marker_is_an_error_that_names_what_it_takes(run, marker: str) -> None:
    result = run(
        f"""
        import pytest

        @pytest.mark.delaylog({marker})
        def test_it(delaylog_embedded):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.delaylog takes *namespace*by name, not *"])


def test_who_asks_for_nothing_pays_nothing(run) -> None:
    """Loaded, but unused, it imports neither numpy nor anything else of delaylog's."""
    run(
        """
        import sys

        def test_it():
            assert not {"numpy", "aiohttp", "delaylog.client"} & set(sys.modules)
        """,
        "-p",
        "no:hypothesispytest",
    ).assert_outcomes(passed=1)
    loaded = run_program(
        sys.executable, "-c", f"import sys, {PLUGIN}; print('numpy' in sys.modules)", check=True
    )
    assert loaded.stdout.strip() == "False"
