"""Who answers where a node does not lead: every handler's kind, with a role made up for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.web.app import elsewhere, reads_locally
from delaylog.contract.calls.table import ALL
from delaylog.contract.members import MemberError

URL = "http://10.0.0.2:8711"
SESSIONS = ("getSession", "openSession", "closeSession", "makeTicket")
LOCAL = ("getCluster", "handOver", "changeMembers", "reload", *SESSIONS)


class Place:
    """A node's role, as a test wants it."""

    def __init__(self, *, leading: bool, url: str | None = None, takes: bool = True) -> None:
        self.leading = leading
        self.url = url
        self.takes = takes

    def leader_url(self) -> str | None:
        return self.url

    def check(self) -> None:
        if not self.takes:
            raise NotLeadingError("not now")


def call(place: Place, query: str = "", *, reads: bool = True, retired: bool = False) -> Any:
    path = "/v1/topics/a%2Fb" + (f"?{query}" if query else "")
    node = SimpleNamespace(
        role=place,
        engine=SimpleNamespace(state=SimpleNamespace(retired=retired)),
        suspended=False,
    )
    ctx: Any = SimpleNamespace(
        node=node,
        reads=reads,
        changes=not reads,
        query_text=query,
    )
    return elsewhere(ctx, path)


def test_the_leader_answers_by_itself() -> None:
    for query in ("", "read=local", "read=leader", "group=g"):
        assert call(Place(leading=True), query) is None
    assert call(Place(leading=True), reads=False) is None


def test_a_leader_that_hands_over_takes_no_changes() -> None:
    """Who reads is served; who changes something is to come again."""
    place = Place(leading=True, takes=False)
    assert call(place) is None
    with pytest.raises(NotLeadingError):
        call(place, reads=False)


def test_a_follower_sends_on() -> None:
    """The path stays as the caller wrote it."""
    for query in ("", "read=leader", "group=g"):
        answer = call(Place(leading=False, url=URL), query)
        tail = f"?{query}" if query else ""
        assert (answer.status, answer.headers["Location"]) == (307, f"{URL}/v1/topics/a%2Fb{tail}")
    # A change is never made locally, whatever its query says.
    assert call(Place(leading=False, url=URL), "read=local", reads=False).status == 307


def test_a_follower_reads_for_who_asks_for_it() -> None:
    assert call(Place(leading=False, url=URL), "read=local") is None
    assert call(Place(leading=False), "group=g&read=local") is None
    with pytest.raises(NotLeadingError):
        call(Place(leading=False, url=URL), "read=local", retired=True)


def test_without_a_leader() -> None:
    for reads in (True, False):
        with pytest.raises(NotLeadingError, match="no leader"):
            call(Place(leading=False), reads=reads)


@pytest.mark.parametrize("query", ["read=all", "read=", "read=local&read=LOCAL"])
def test_unknown_words(query: str) -> None:
    with pytest.raises(MemberError) as caught:
        reads_locally(query)
    assert caught.value.field == "read"


def test_only_what_looks_is_read_locally() -> None:
    """The table of calls says it: GET looks, everything else changes or hands out, as a stream."""
    for call in ALL:
        others = ("getCluster", "getSession", "stream")
        looks = call.method == "GET" and call.name not in others
        assert call.reads == looks, call.name
        assert call.local == (call.name in LOCAL), call.name
