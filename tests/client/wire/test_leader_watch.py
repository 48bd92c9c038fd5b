"""A node that is silent: when a client leaves it for another leader, and when it goes on waiting.

Servers of bare sockets hang in all the ways in which nodes and networks do; a second server stands
for another member, which says who leads. Every test runs with either client. The time limit of the
calls is that of the example in HOWTO, five minutes, so a test whose call waits for it fails.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delaylog.client import AnswerLate, AnswerLost, AsyncPlainClient
from delaylog.client.child_broker import free_ports
from delaylog.client.wire import exchange
from delaylog.client.wire.credentials import Credentials
from delaylog.client.wire.exchange import Answer, Ask, LeaderWatch, Silence
from delaylog.client.wire.leader_route import LeaderRoute
from tests.certificates import self_signed, write_private
from tests.client._sync.scripted_server import Server, Wire, serving
from tests.client.either import PLAIN_CLIENTS
from tests.waiting import await_that

LONG = timedelta(minutes=5)
SOON_S = 40
SENT = {"id": "~1", "deliver_at_ms": 7, "result": "created"}
QUESTION = b"GET /v1/cluster "


@pytest.fixture(autouse=True, params=PLAIN_CLIENTS, ids=["async", "sync"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with either client."""
    monkeypatch.setitem(globals(), "AsyncPlainClient", request.param)


def answer(shape: Any) -> bytes:
    body = json.dumps(shape).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def cluster(leader: str | None, *members: str, role: str = "follower") -> dict[str, Any]:
    named = None if leader is None else {"http": leader}
    return {"role": role, "leader": named, "members": [{"http": url} for url in members]}


class Member:
    """A node that answers calls, and the question who leads as the test says."""

    def __init__(self) -> None:
        self.says: Any = {}
        self.sent: Any = SENT

    def __call__(self, wire: Wire) -> None:
        while asked := wire.request():
            is_question = asked.startswith(QUESTION)
            wire.socket.sendall(answer(self.says if is_question else self.sent))


def calls(server: Server) -> int:
    """Requests other than questions."""
    return sum(not each.startswith(QUESTION) for each in server.requests)


def questions(server: Server) -> int:
    return len(server.requests) - calls(server)


def hang(wire: Wire) -> None:
    """Read whatever comes, and say nothing."""
    while wire.request():
        pass


def deaf(wire: Wire) -> None:
    """Read nothing: a stopped process, whose kernel still takes connections."""
    time.sleep(60)


def in_the_head(wire: Wire) -> None:
    wire.request()
    wire.socket.sendall(answer(SENT)[:20])
    hang(wire)


def in_the_body(wire: Wire) -> None:
    """Packets are dropped from here on."""
    wire.request()
    wire.socket.sendall(answer(SENT)[:-5])
    hang(wire)


def ready_only(wire: Wire) -> None:
    """It answers whoever asks for its health, and no call."""
    while asked := wire.request():
        if asked.startswith(b"GET /readyz "):
            wire.socket.sendall(answer({"status": "ready"}))


@pytest.mark.parametrize("how", [hang, deaf, in_the_head, in_the_body, ready_only])
async def test_a_node_that_hangs_is_left_once_another_one_leads(
    how: Callable[[Wire], None],
) -> None:
    """A send, a poll that may be repeated, and one whose body does not fit into the buffers."""
    other = Member()
    with serving(how) as one, serving(other) as two:
        other.says = cluster(two.url, one.url, two.url)
        for body in ("x", "x" * (8 << 20)):
            async with AsyncPlainClient(one.url, members=[two.url], timeout=LONG) as client:
                sending = client.send("t", body, idempotency_key="k")
                assert (await asyncio.wait_for(sending, SOON_S)).id == "~1"
                # The next call does not try the hung node again.
                asked = one.connections
                await asyncio.wait_for(client.send("t", "x"), SOON_S)
                assert one.connections == asked
        assert calls(two) == 4


async def test_a_handshake_that_hangs_has_sent_nothing(tmp_path: Path) -> None:
    """So even a call that must not be repeated goes to the leader."""
    path = write_private(tmp_path / "both.pem", self_signed())
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(path)
    other = Member()

    def over_tls(wire: Wire) -> None:
        wire.socket = server_side.wrap_socket(wire.socket, server_side=True)
        other(wire)

    with serving(deaf) as one, serving(over_tls) as two:
        urls = [each.url.replace("http:", "https:") for each in (one, two)]
        other.says = cluster(urls[1], *urls)
        client = AsyncPlainClient(
            urls[0], members=urls[1:], timeout=LONG, tls=ssl.create_default_context(cafile=path)
        )
        async with client:
            assert (await asyncio.wait_for(client.send("t", "x"), SOON_S)).id == "~1"
        assert calls(two) == 1


async def test_a_call_that_must_not_be_repeated_is_lost() -> None:
    """As if the connection had broken off: the hung node may have carried it out."""
    other = Member()
    with serving(hang) as one, serving(other) as two:
        other.says = cluster(two.url, one.url, two.url)
        async with AsyncPlainClient(one.url, members=[two.url], timeout=LONG) as client:
            with pytest.raises(AnswerLost, match=f"no answer, and {two.url} leads"):
                await asyncio.wait_for(client.send("t", "x"), SOON_S)
            assert (calls(one), calls(two)) == (1, 0)
            await client.send("t", "x")
            assert (calls(one), calls(two)) == (1, 1)


@pytest.mark.parametrize("said", ["the silent one", "nobody", "nothing", "a stranger"])
async def test_a_slow_answer_is_waited_for(said: str) -> None:
    """Also if nobody else leads yet; then the node itself answers, and the call is made once."""
    other = Member()

    def slow(wire: Wire) -> None:
        while wire.request():
            time.sleep(3)
            wire.socket.sendall(answer(SENT))

    with serving(slow) as one, serving(other) as two:
        other.says = {
            "the silent one": cluster(one.url, one.url, two.url),
            "nobody": cluster(None, one.url, two.url),
            "nothing": [],
            "a stranger": cluster("http://stranger.invalid:1", one.url, two.url),
        }[said]
        client = AsyncPlainClient(one.url, members=[two.url], timeout=LONG, token="t0ken")
        async with client:
            assert (await client.send("t", "x", idempotency_key="k")).id == "~1"
        assert (calls(one), calls(two)) == (1, 0)
        assert 1 <= questions(two) <= 20


async def test_a_slow_answer_is_waited_for_when_no_member_answers() -> None:
    """A dead one, and one that hangs too."""

    def slow(wire: Wire) -> None:
        while wire.request():
            time.sleep(3)
            wire.socket.sendall(answer(SENT))

    with serving(slow) as one, serving(deaf) as two:
        members = [two.url, f"http://127.0.0.1:{free_ports(1)[0]}"]
        async with AsyncPlainClient(one.url, members=members, timeout=LONG) as client:
            assert (await client.send("t", "x")).id == "~1"
        assert calls(one) == 1


async def test_a_member_that_hangs_does_not_hide_the_leader() -> None:
    """The one that is asked first hangs, too; another one knows the leader."""
    other = Member()
    with serving(hang) as one, serving(deaf) as two, serving(other) as three:
        other.says = cluster(three.url, one.url, two.url, three.url)
        members = [two.url, three.url]
        async with AsyncPlainClient(one.url, members=members, timeout=LONG) as client:
            sending = client.send("t", "x", idempotency_key="k")
            assert (await asyncio.wait_for(sending, SOON_S)).id == "~1"
        assert calls(three) == 1


@pytest.mark.parametrize("leads", [True, False])
async def test_a_node_known_by_another_address_is_asked_itself(leads: bool) -> None:
    """Its address in the cluster file differs from the client's, so it may be the leader named."""
    other = Member()

    def quiet(wire: Wire) -> None:
        while asked := wire.request():
            if asked.startswith(QUESTION):
                role = "leader" if leads else "follower"
                wire.socket.sendall(answer(cluster(two.url, two.url, role=role)))
            else:
                time.sleep(3)
                wire.socket.sendall(answer(SENT))

    with serving(quiet) as one, serving(other) as two:
        other.says = cluster(two.url, two.url)
        async with AsyncPlainClient(one.url, members=[two.url], timeout=LONG) as client:
            await client.send("t", "x", idempotency_key="k")
        assert (calls(one), calls(two)) == ((1, 0) if leads else (1, 1))


async def test_a_name_with_several_addresses_and_one_node_of_it_that_hangs() -> None:
    """The client knows a name that leads to any node; the members have addresses of their own."""
    other = Member()
    with serving(deaf) as one, serving(other) as two:
        other.says = cluster(two.url, one.url, two.url)
        name = one.url.replace("127.0.0.1", "localhost")
        async with AsyncPlainClient(name, members=[two.url], timeout=LONG) as client:
            sending = client.send("t", "x", idempotency_key="k")
            assert (await asyncio.wait_for(sending, SOON_S)).id == "~1"
        assert calls(two) == 1


async def test_nobody_is_asked_about_a_node_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In time, or always a little; nor by a client that knows one address."""
    # A busy machine may stand still for a second.
    monkeypatch.setattr(exchange, "QUIET_S", 3.0)
    other = Member()

    def in_drops(wire: Wire) -> None:
        wire.request()
        head, body = answer(SENT)[:-40], answer(SENT)[-40:]
        wire.socket.sendall(head)
        for byte in body:
            wire.socket.sendall(bytes((byte,)))
            time.sleep(0.1)
        hang(wire)

    with serving(Member()) as quick, serving(in_drops) as one, serving(other) as two:
        async with AsyncPlainClient(quick.url, members=[two.url]) as client:
            for _ in range(50):
                await client.send("t", "x")
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            assert (await client.send("t", "x")).id == "~1"
        with serving(hang) as alone:
            async with AsyncPlainClient(alone.url) as client:
                with pytest.raises(AnswerLate):
                    await client.send("t", "x", timeout=timedelta(seconds=4.5))
            assert len(alone.requests) == 1
        assert two.requests == []


async def test_a_node_that_hands_over_is_waited_for() -> None:
    """It answers after the other one has begun to lead; its answer says how long that took."""
    other = Member()

    def slow(wire: Wire) -> None:
        while asked := wire.request():
            if asked.startswith(QUESTION):
                wire.socket.sendall(answer({"node": 1, "leader": {"node": 1}}))
            else:
                time.sleep(2.5)
                wire.socket.sendall(answer({"to": 2}))

    with serving(slow) as one, serving(other) as two:
        other.says = cluster(two.url, one.url, two.url)
        async with AsyncPlainClient(one.url, members=[two.url], timeout=LONG) as client:
            assert await client.hand_over() == {"to": 2}


async def test_many_calls_share_the_questions() -> None:
    """They also go out while the hung calls have all connections."""
    other = Member()
    with serving(hang) as one, serving(other) as two:
        other.says = cluster(one.url, one.url, two.url)
        async with AsyncPlainClient(
            one.url, members=[two.url], timeout=LONG, connections_max=5
        ) as client:
            sends = [
                asyncio.ensure_future(client.send("t", "x", idempotency_key=f"k{n}"))
                for n in range(12)
            ]
            await asyncio.to_thread(await_that, lambda: questions(two) >= 4)
            began = time.monotonic()
            before = questions(two)
            await asyncio.sleep(2)
            # Two in a second, if all are asked in time.
            assert questions(two) - before <= 4 * (time.monotonic() - began)
            other.says = cluster(two.url, one.url, two.url)
            await asyncio.wait_for(asyncio.gather(*sends), SOON_S)
        assert calls(two) == 12


def test_old_news_leave_nobody() -> None:
    """Each exchange needs an answer to a question that was asked since its node fell silent."""
    now = [10.0]
    one, two, three = "http://a", "http://b", "http://c"
    route = LeaderRoute(one, (two, three), Credentials(environ={}))
    watch = LeaderWatch(route, lambda: now[0])

    def look(silence: Silence, said: Any) -> tuple[list[str], bool]:
        asked: list[str] = []
        plan = watch.look(silence)
        try:
            step = next(plan)
            while True:
                assert isinstance(step, Ask)
                asked.append(step.node)
                step = plan.send(Answer(200, json.dumps(said).encode()))
        except StopIteration as done:
            return asked, done.value

    members = (one, two, three)
    old, poll = Silence(one, 0.5, 8.0), Silence(one, 1.5, 8.0)
    assert look(old, cluster(one, *members)) == ([two], False)
    now[0] = 10.4
    assert look(poll, None) == ([], False)
    now[0] = 10.6
    assert look(old, cluster(two, *members)) == ([two], True)
    assert route.node == two
    # Another exchange at the same node need not ask; one that has just begun does not know.
    assert look(poll, None) == ([], True)
    assert look(Silence(one, 0.5, 10.7), None) == ([], False)
    # Once nobody is named any more, what was said before counts no longer.
    now[0] = 11.2
    assert look(poll, {}) == ([], True)
    now[0] = 12.2
    assert look(poll, {}) == ([two], False)
    assert look(poll, None) == ([], False)
    now[0] = 13.0
    assert look(poll, cluster(one, *members)) == ([three], False)
