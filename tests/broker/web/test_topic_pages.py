"""Topics are listed by name and page by page, whatever is created and dropped meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from delaylog.client import AsyncPlainClient, Client
from tests.broker.conftest import Broker

NAMES = sorted([*(f"a{k}" for k in range(5)), "b", "ba", "bb", "z"])


@pytest.fixture(scope="module", autouse=True)
def space(broker: Broker) -> str:
    for name in NAMES:
        broker.call("PUT", f"/v1/ns/pages/topics/{name}", {})
    return "/v1/ns/pages/topics"


def pages(broker: Broker, path: str) -> list[list[str]]:
    found: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = broker.call("GET", f"{path}&cursor={cursor}").json
        found.append([each["topic"] for each in answer["topics"]])
        cursor = answer["cursor"]
    return found


@pytest.mark.parametrize("limit", [1, 2, 4, 9, 10])
def test_pages_join_to_the_whole_list(broker: Broker, space: str, limit: int) -> None:
    found = pages(broker, f"{space}?limit={limit}")
    assert list(chain.from_iterable(found)) == NAMES
    assert all(len(page) == limit for page in found[:-1])
    assert found[-1], "no page is empty"


@pytest.mark.parametrize("limit", [1, 2, 9])
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("prefix=b", ["b", "ba", "bb"]),
        ("prefix=a", [f"a{k}" for k in range(5)]),
        ("prefix=x", []),
        ("prefix=ba", ["ba"]),
        ("contains=b", ["b", "ba", "bb"]),
        ("contains=a", [*(f"a{k}" for k in range(5)), "ba"]),
        ("contains=a&prefix=b", ["ba"]),
        ("contains=q", []),
    ],
)
def test_a_prefix_or_another_part_of_the_name_filters(
    broker: Broker, space: str, query: str, wanted: list[str], limit: int
) -> None:
    found = pages(broker, f"{space}?{query}&limit={limit}")
    assert list(chain.from_iterable(found)) == wanted
    assert found[-1] or not wanted, "no page is empty"


def test_the_topics_with_the_most_come_first(
    broker: Broker, assert_problem: Callable[..., dict[str, Any]]
) -> None:
    space = "/v1/ns/sorted/topics"
    for name, count in {"few": 1, "none": 0, "many": 3, "some": 2}.items():
        broker.call("PUT", f"{space}/{name}", {})
        for _ in range(count):
            broker.call("POST", f"{space}/{name}/messages", {"body": "x", "delay_ms": 3_600_000})
    answer = broker.call("GET", f"{space}?sort=waiting&limit=3").json
    assert [each["topic"] for each in answer["topics"]] == ["many", "some", "few"]
    answer = broker.call("GET", f"{space}?sort=waiting&contains=e").json
    assert [each["topic"] for each in answer["topics"]] == ["some", "few", "none"]
    assert answer["cursor"] is None
    for limit in (1, 2, 3, 4):
        found = pages(broker, f"{space}?sort=waiting&limit={limit}")
        assert list(chain.from_iterable(found)) == ["many", "some", "few", "none"]
        assert all(len(page) == limit for page in found[:-1])
    for cursor in ("few", "1.", "-1.few", "x.few"):
        refusal = broker.call("GET", f"{space}?sort=waiting&cursor={cursor}")
        assert_problem(refusal, 400, "bad_request", "cursor")
    assert_problem(broker.call("GET", f"{space}?sort=size"), 400, "bad_request", "sort")


def test_without_parameters_all_of_a_few_come(broker: Broker, space: str) -> None:
    answer = broker.call("GET", space).json
    assert [each["topic"] for each in answer["topics"]] == NAMES
    assert answer["cursor"] is None


def test_what_is_dropped_between_pages_is_no_gap(broker: Broker, space: str) -> None:
    broker.call("PUT", f"{space}/az", {})
    first = broker.call("GET", f"{space}?limit=6").json
    assert first["cursor"] == "az"
    broker.call("DELETE", f"{space}/az")
    rest = broker.call("GET", f"{space}?cursor=az").json
    assert [each["topic"] for each in rest["topics"]] == NAMES[5:]


def test_limits_are_checked(
    broker: Broker, space: str, assert_problem: Callable[..., dict[str, Any]]
) -> None:
    assert_problem(broker.call("GET", f"{space}?limit=0"), 400, "bad_request", "limit")
    assert_problem(broker.call("GET", f"{space}?limit=1001"), 400, "bad_request", "limit")


def test_clients_follow_pages(start_broker: Callable[..., Broker]) -> None:
    """Purpose: more topics than a page has. Method: a hundred more, sent to by one client."""
    broker = start_broker()

    async def make() -> None:
        async with AsyncPlainClient(broker.url) as client:
            for first in range(0, 1_100, 50):
                calls = (client.put_topic(f"t{k:05}", {}) for k in range(first, first + 50))
                await asyncio.gather(*calls)

    asyncio.run(make())
    with Client(broker.url) as client:
        assert [each.topic for each in client.topics()] == [f"t{k:05}" for k in range(1_100)]
    assert len(broker.call("GET", "/v1/topics").json["topics"]) == 1_000
    assert broker.stop() == 0
