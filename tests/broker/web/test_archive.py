"""The archive over HTTP: what it says, what it releases and refuses, and across a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import Broker

HOUR = 3_600_000


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("holding")
    broker = Broker(folder, "--archive-hold", "on")
    broker.start()
    yield broker
    broker.end_well()
    broker.kill()


def test_without_the_setting_a_release_says_how_to_get_it(broker: Any) -> None:
    found = broker.call("GET", "/v1/archive")
    assert found.status == 200
    assert found.json["hold"] is False
    assert (found.json["hours"], found.json["oldest_ms"]) == (0, None)
    refused = broker.call("POST", "/v1/archive/release", {"through_ms": 300_000 * HOUR})
    assert (refused.status, refused.json["code"]) == (409, "conflict")
    assert "--archive-hold on" in refused.json["detail"]


def test_a_release_is_remembered_and_never_goes_ahead(holding: Broker) -> None:
    """The hour floor of a fresh broker is two hours ago, once it has a checkpoint."""
    holding.call("POST", "/v1/topics/t/messages", {"body": "x"})
    # Its last act is a checkpoint, which sets the floor.
    assert holding.stop() == 0
    holding.start()
    found = holding.call("GET", "/v1/archive").json
    assert found["hold"] is True
    assert found["next"]["why"] == "an hour takes messages until an hour after its end"
    assert found["next"]["from_ms"] % HOUR == 0
    assert found["released_through_ms"] == 0
    through = found["archivable_through_ms"]
    assert through > 0
    assert through % HOUR == 0
    ahead = holding.call("POST", "/v1/archive/release", {"through_ms": through + HOUR})
    assert (ahead.status, ahead.json["code"]) == (409, "conflict")
    assert ahead.json["archivable_through_ms"] == through
    done = holding.call("POST", "/v1/archive/release", {"through_ms": through - HOUR + 1})
    assert done.status == 200
    assert done.json == {**found, "result": "done", "released_through_ms": through - HOUR}
    again = holding.call(
        "POST", "/v1/archive/release", {"through_ms": 300_000 * HOUR, "position": 0}
    )
    assert again.json["result"] == "already"
    holding.crash()
    holding.start()
    after = holding.call("GET", "/v1/archive").json
    assert after["released_through_ms"] == through - HOUR
    assert "delaylog_archive_held_folders 0.0" in holding.call("GET", "/metrics").body.decode()


@pytest.mark.parametrize(
    "members",
    [{}, {"through_ms": None}, {"through_ms": "1"}, {"through_ms": -1}, {"through": 1}, []],
)
def test_what_is_wrong_is_named(holding: Broker, members: Any) -> None:
    refused = holding.call("POST", "/v1/archive/release", members)
    assert (refused.status, refused.json["code"]) == (400, "bad_request")
