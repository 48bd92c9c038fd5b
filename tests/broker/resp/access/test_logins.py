"""Who a Redis client is: by token or certificate, and when that ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tests.broker.resp.conftest import RespBroker, RespSecured
from tests.broker.resp.resp_client import is_closed, is_error
from tests.waiting import await_that

Make = Callable[..., RespSecured]


def test_nobody_may_do_anything_but_log_in(secured: RespSecured) -> None:
    client = secured.connect(None)
    for command in (("GET", "k"), ("DL.SEND", "t", 0, "x"), ("ACL", "WHOAMI"), ("HELLO", 3)):
        assert is_error(client.call(*command), "NOAUTH"), command
    assert client.call("QUIT") == b"OK"
    hostile = secured.connect(None)
    hostile.sock.sendall(b"*100000\r\n")
    assert is_error(hostile.reply(), "ERR Protocol error: unauthenticated multibulk length")


def test_a_token_proves_its_principal_by_any_login(secured: RespSecured) -> None:
    token = secured.principal("shop", "redis")
    for words in (("AUTH", token), ("AUTH", "shop", token), ("AUTH", "default", token)):
        client = secured.connect(None)
        assert client.call(*words) == b"OK"
        assert client.call("ACL", "WHOAMI") == b"shop"
        client.close()
    for name in ("shop", "default"):
        client = secured.connect(None)
        assert dict(client.call("HELLO", 3, "AUTH", name, token))[b"proto"] == 3
        assert client.call("SET", "by-hello", name) == b"OK"
        client.close()


def test_what_is_wrong_about_a_login_is_not_told(secured_broker: Make) -> None:
    secured = secured_broker()
    token = secured.principal("shop", "redis")
    revoked = secured.principal("gone", "redis")
    assert secured.call("DELETE", "/v1/principals/gone").status == 200
    texts = set()
    for words in (
        ("AUTH", "no-such-token"),
        ("AUTH", "shop", secured.admin),
        ("AUTH", "admin", token),
        ("AUTH", "nobody", token),
        ("AUTH", "gone", revoked),
        ("AUTH", revoked),
        ("AUTH", b"\xff\xfe"),
        ("HELLO", 3, "AUTH", "shop", "x"),
    ):
        client = secured.connect(None)
        texts.add(str(client.call(*words)))
        assert is_error(client.call("GET", "k"), "NOAUTH")
        client.close()
    assert texts == {"WRONGPASS invalid username-password pair or user is disabled."}
    log = secured.broker.log_path.read_text()
    assert token not in log
    assert revoked not in log


def test_authentication_begins_with_the_first_principal(
    start_broker: Callable[..., RespBroker],
) -> None:
    """Clients that are connected already are refused from then on, and those that wait closed."""
    broker = start_broker()
    idle, blocked, subscribed = (broker.connect() for _ in range(3))
    assert idle.call("SET", "k", "v") == b"OK"
    blocked.send("BLPOP", "queue", 0)
    subscribed.call("SUBSCRIBE", "news")
    made = broker.call("PUT", "/v1/principals/root", {"grants": ["admin"]})
    assert is_error(idle.call("GET", "k"), "NOAUTH")
    assert is_closed(blocked)
    assert is_closed(subscribed)
    assert idle.call("AUTH", made.json["token"]) == b"OK"
    assert idle.call("GET", "k") == b"v"
    broker.end_well()


def test_where_authentication_is_off_every_login_is_good_enough(
    start_broker: Callable[..., RespBroker],
) -> None:
    """A client that is configured with a token works, and its rights do not limit it."""
    broker = start_broker("--insecure", "no-auth")
    broker.call("PUT", "/v1/principals/root", {"grants": ["admin"]})
    made = broker.call("PUT", "/v1/principals/low", {"grants": ["viewer"]})
    client = broker.connect()
    assert client.call("AUTH", "low", made.json["token"]) == b"OK"
    assert client.call("SET", "k", "v") == b"OK"
    assert client.call("ACL", "WHOAMI") == b"default"
    assert is_error(client.call("AUTH", "root", "wrong"), "WRONGPASS")
    broker.end_well()


def test_a_revocation_closes_every_connection_within_a_second(secured: RespSecured) -> None:
    # A busy machine may take longer once.
    turns = sorted(seconds_to_close(secured, f"leaver-{turn}") for turn in range(3))
    assert turns[1] < 1, turns


def seconds_to_close(secured: RespSecured, name: str) -> float:
    """How long connections outlive the principal that opened them."""
    token = secured.principal(name, "consumer", "redis")
    clients = [secured.connect(token) for _ in range(4)]
    idle, blocked, subscribed, receiving = clients
    assert idle.call("GET", "k") is None
    blocked.send("BLPOP", "of-the-leaver", 0)
    assert subscribed.call("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]
    receiving.send("DL.RECEIVE", "t", 1, "WAIT", 20_000)
    other = secured.connect()
    await_that(lambda: b"cmd=blpop" in other.call("CLIENT", "LIST"))
    assert secured.call("DELETE", f"/v1/principals/{name}").status == 200
    revoked = time.monotonic()
    assert all(map(is_closed, clients))
    took_s = time.monotonic() - revoked
    assert other.call("RPUSH", "of-the-leaver", "x") == 1
    assert other.call("LPOP", "of-the-leaver") == b"x"
    assert other.call("PUBLISH", "news", "x") == 0
    return took_s


def test_no_command_runs_after_a_revocation(secured: RespSecured) -> None:
    """Also before the broker has looked at its connections."""
    other = secured.connect()
    for number in range(5):
        client = secured.connect(secured.principal(f"late{number}", "redis"))
        assert secured.call("DELETE", f"/v1/principals/late{number}").status == 200
        with contextlib.suppress(ConnectionError):
            client.send("SET", f"late{number}", "written")
        assert is_closed(client)
        assert other.call("EXISTS", f"late{number}") == 0


@pytest.mark.parametrize(
    "change",
    [
        {"grants": ["viewer"]},
        {"calls_per_s": 5},
        {"certificates": ["cn:x"]},
    ],
    ids=["grants", "rate", "certificates"],
)
def test_a_change_of_rights_closes_connections(
    secured: RespSecured, change: dict[str, object]
) -> None:
    name = f"changed-{next(iter(change))}"
    client = secured.connect(secured.principal(name, "redis"))
    assert client.call("PING") == b"PONG"
    changed = {"grants": ["redis"]} | change
    assert secured.call("PUT", f"/v1/principals/{name}", changed).status == 200
    assert is_closed(client)


def test_a_rotated_token_ends_with_its_grace(secured: RespSecured) -> None:
    old = secured.connect(secured.principal("rotated", "redis"))
    answer = secured.call("POST", "/v1/principals/rotated/rotate", {"grace_ms": 300})
    new = secured.connect(answer.json["token"])
    assert is_closed(old)
    assert new.call("PING") == b"PONG"


def test_a_token_that_expires_ends_connections(secured: RespSecured) -> None:
    # A busy machine may need seconds for two logins.
    ends_ms = int(time.time() * 1_000) + 5_000
    token = secured.principal("brief", "redis", expires_at_ms=ends_ms)
    idle, blocked = secured.connect(token), secured.connect(token)
    assert idle.call("SET", "k", "v") == b"OK"
    blocked.send("BLPOP", "nothing", 0)
    assert is_closed(blocked)
    assert time.time() * 1_000 >= ends_ms
    assert is_closed(idle)
    assert is_error(secured.connect(None).call("AUTH", token), "WRONGPASS")


def test_another_user_does_not_keep_what_the_first_one_saw(secured: RespSecured) -> None:
    client = secured.user("redis")
    client.call("HELLO", 3)
    client.call("WATCH", "k")
    client.send("SUBSCRIBE", "secret-news")
    client.reply()
    assert client.call("AUTH", secured.token("redis")) == b"OK"
    assert secured.connect().call("PUBLISH", "secret-news", "x") == 0
    assert client.call("MULTI") == b"OK"
    assert client.call("GET", "k") == b"QUEUED"
    assert client.call("EXEC") is None


def test_reset_ends_a_login(secured: RespSecured) -> None:
    client = secured.user("redis")
    assert client.call("RESET") == b"RESET"
    assert is_error(client.call("GET", "k"), "NOAUTH")
