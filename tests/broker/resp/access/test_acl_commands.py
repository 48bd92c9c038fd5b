"""ACL commands: users are principals, who may change them, and what no reply shows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from delaylog.broker.keyspace.access.rules import ALL_WORDS
from tests.broker.resp.conftest import RespBroker, RespSecured
from tests.broker.resp.resp_client import RespClient, is_closed, is_error

PASSWORD = "a-password-of-24-letters"
DIGEST = hashlib.sha256(PASSWORD.encode()).hexdigest()


@pytest.fixture(scope="module")
def admin(secured: RespSecured) -> RespClient:
    return secured.connect()


def members(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_a_user_is_a_principal(secured: RespSecured, admin: RespClient) -> None:
    words = ("on", f">{PASSWORD}", "+@read", "+@dlsend", "~jobs:*", "&n")
    assert admin.call("ACL", "SETUSER", "made", *words) == b"OK"
    told = secured.call("GET", "/v1/principals/made").json
    assert told["redis"] == ["+@read", "+@dlsend", "~jobs:*", "&n"]
    assert told["grants"] == []
    assert len(told["tokens"]) == 1
    client = secured.connect(PASSWORD)
    assert client.call("ACL", "WHOAMI") == b"made"
    assert client.call("GET", "jobs:1") is None
    header = {"Authorization": f"Bearer {PASSWORD}"}
    assert secured.broker.call("GET", "/v1/session", None, header).json["principal"] == "made"


def test_a_principal_keeps_what_words_do_not_name(secured: RespSecured, admin: RespClient) -> None:
    token = secured.principal("kept", "viewer", certificates=["cn:kept"], calls_per_s=9)
    assert admin.call("ACL", "SETUSER", "kept", "+get", "~a") == b"OK"
    told = secured.call("GET", "/v1/principals/kept").json
    assert (told["grants"], told["certificates"], told["calls_per_s"]) == (
        ["viewer"],
        ["cn:kept"],
        9,
    )
    assert secured.connect(token).call("GET", "a") is None


def test_http_shows_rules_in_their_short_form(secured: RespSecured) -> None:
    for given in (["allkeys", "+GET", "+get"], ["+get", "allkeys"]):
        put = secured.call("PUT", "/v1/principals/short", {"redis": given})
        assert put.json["redis"] == ["+get", "~*"]
    assert secured.call("GET", "/v1/principals/short").json["redis"] == ["+get", "~*"]
    refused = secured.call("PUT", "/v1/principals/short", {"redis": ["+nosuch"]})
    assert (refused.status, refused.json["field"]) == (400, "redis")


def test_no_reply_shows_a_secret(secured: RespSecured, admin: RespClient) -> None:
    admin.call("ACL", "SETUSER", "shown", f">{PASSWORD}x", f"#{DIGEST[::-1]}", "+get")
    told = [
        admin.call("ACL", "GETUSER", "shown"),
        admin.call("ACL", "LIST"),
        admin.call("ACL", "SETUSER", "shown", f">{PASSWORD}2", f"<{PASSWORD}3"),
        admin.call("ACL", "SETUSER", "shown", f"#{DIGEST[:-1]}"),
        admin.call("ACL", "SETUSER", "shown", f"!{DIGEST}"),
        admin.call("ACL", "SETUSER", "shown", ">too-short"),
        admin.call("AUTH", f"{PASSWORD}4", "wrong"),
        admin.call("ACL", "LOG"),
    ]
    assert members(told[0])[b"passwords"] == []
    text = str(told) + secured.broker.log_path.read_text()
    assert PASSWORD not in text
    assert "too-short" not in text
    assert DIGEST[:20] not in text
    assert DIGEST[::-1] not in text
    assert is_error(
        told[5], "ERR Error in ACL SETUSER modifier '>(secret)': a password has at least"
    )


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("nopass", "every user has a password"),
        ("off", "a user cannot be switched off"),
        ("(+get ~a)", "selectors are not supported"),
        ("skip-sanitize-payload", "payloads of RESTORE are always checked"),
        ("+dl.send", "commands of the delay log are allowed by category"),
        ("+select|0", "select has no subcommands"),
        ("~\xff".encode("latin-1"), "are UTF-8 text"),
    ],
)
def test_what_does_not_map_is_refused(admin: RespClient, word: str | bytes, why: str) -> None:
    reply = admin.call("ACL", "SETUSER", "unmapped", word)
    assert is_error(reply, "ERR")
    assert why in str(reply)
    assert b"unmapped" not in admin.call("ACL", "USERS")


def test_passwords(secured: RespSecured, admin: RespClient) -> None:
    """Two at a time, none that another user has; a digest counts as its password."""
    change = ("ACL", "SETUSER", "pass")
    assert admin.call(*change, f"#{hashlib.sha256(b'p' * 16).hexdigest()}", "+get", "~*") == b"OK"
    assert secured.connect("p" * 16).call("GET", "k") is None
    assert admin.call(*change, ">" + "q" * 16) == b"OK"
    assert is_error(admin.call(*change, ">" + "r" * 16), "ERR Error in ACL SETUSER modifier '>(s")
    assert admin.call(*change, "<" + "p" * 16, ">" + "r" * 16) == b"OK"
    taken = admin.call("ACL", "SETUSER", "thief", ">" + "r" * 16)
    assert is_error(taken, "CONFLICT another principal has this secret")
    assert secured.connect("r" * 16).call("ACL", "WHOAMI") == b"pass"
    assert admin.call(*change, "resetpass") == b"OK"
    assert is_error(secured.connect(None).call("AUTH", "r" * 16), "WRONGPASS")
    assert admin.call(*change, "reset") == b"OK"
    assert members(admin.call("ACL", "GETUSER", "pass"))[b"commands"] == b"-@all"


def test_names(admin: RespClient) -> None:
    for name in ("default", "a b", "", "x" * 101, "a:b"):
        assert is_error(admin.call("ACL", "SETUSER", name, "on"), "ERR"), name


def test_only_administrators_see_and_change_users(secured: RespSecured, admin: RespClient) -> None:
    """The right is `admin`, which no rule gives."""
    client = secured.user(*ALL_WORDS)
    before = admin.call("ACL", "LIST")
    for words in (
        ("USERS",),
        ("LIST",),
        ("GETUSER", "admin"),
        ("LOG",),
        ("LOG", "RESET"),
        ("DRYRUN", "admin", "get", "k"),
        ("SETUSER", "mine", "+@all"),
        ("DELUSER", "made"),
        ("SAVE",),
        ("LOAD",),
    ):
        reply = client.call("ACL", *words)
        assert is_error(
            reply, f"NOPERM this user has no permissions to run the 'acl|{words[0].lower()}'"
        )
    assert client.call("ACL", "WHOAMI").startswith(b"p")
    assert b"dlchange" in client.call("ACL", "CAT")
    assert client.call("ACL", "CAT", "dlread") == [b"dl.get", b"dl.stats"]
    assert len(client.call("ACL", "GENPASS")) == 64
    assert admin.call("ACL", "LIST") == before
    assert admin.call("ACL", "SAVE") == admin.call("ACL", "LOAD") == b"OK"
    assert secured.user(grants=["admin"]).call("ACL", "USERS") == admin.call("ACL", "USERS")


def test_the_last_administrator_stays(secured_broker: Callable[..., RespSecured]) -> None:
    secured = secured_broker()
    admin = secured.connect()
    admin.call("ACL", "SETUSER", "made", "+get")
    for words in (("DELUSER", "made", "admin"), ("SETUSER", "admin", "resetpass")):
        reply = admin.call("ACL", *words)
        assert is_error(reply, "CONFLICT"), reply
    assert b"made" in admin.call("ACL", "USERS")
    assert secured.connect().call("PING") == b"PONG"


def test_the_first_user_is_an_administrator(start_broker: Callable[..., RespBroker]) -> None:
    """A user without that right would lock everyone out."""
    client = start_broker().connect()
    assert client.call("ACL", "LIST") == [b"user default on nopass ~* &* +@all"]
    reply = client.call("ACL", "SETUSER", "first", f">{PASSWORD}", "+@all")
    assert is_error(reply, "CONFLICT the first user must be an administrator")
    assert client.call("ACL", "USERS") == [b"default"]
    assert client.call("ACL", "WHOAMI") == b"default"


def test_changes_end_connections(secured: RespSecured, admin: RespClient) -> None:
    admin.call("ACL", "SETUSER", "ended", f">{PASSWORD}e", "+@all", "~*", "&*")
    client = secured.connect(f"{PASSWORD}e")
    client.send("BLPOP", "nothing", 0)
    assert admin.call("ACL", "SETUSER", "ended", "-blpop") == b"OK"
    assert is_closed(client)
    client = secured.connect(f"{PASSWORD}e")
    assert admin.call("ACL", "DELUSER", "ended", "nobody") == 1
    assert is_closed(client)


def test_a_user_that_changes_its_own_rights_gets_the_reply(secured: RespSecured) -> None:
    client = secured.connect(secured.principal("self", "admin", redis=ALL_WORDS))
    replies = client.pipeline(("SET", "k", "v"), ("ACL", "SETUSER", "self", "-flushall"))
    assert replies == [b"OK", b"OK"]
    assert is_closed(client)


def test_users_are_not_changed_in_a_transaction(admin: RespClient) -> None:
    client = admin
    assert client.call("MULTI") == b"OK"
    for words in (("SETUSER", "queued", "+get"), ("DELUSER", "made")):
        assert client.call("ACL", *words) == b"QUEUED"
    assert all(is_error(reply, "ERR users cannot be changed") for reply in client.call("EXEC"))
    assert b"queued" not in client.call("ACL", "USERS")


def test_changes_are_durable(secured_broker: Callable[..., RespSecured]) -> None:
    secured = secured_broker()
    assert secured.connect().call("ACL", "SETUSER", "kept", f">{PASSWORD}", "+get", "~*") == b"OK"
    secured.broker.crash()
    secured.broker.start()
    assert secured.connect(PASSWORD).call("GET", "k") is None
    assert secured.connect().call("ACL", "DELUSER", "kept") == 1
    secured.broker.crash()
    secured.broker.start()
    assert is_error(secured.connect(None).call("AUTH", PASSWORD), "WRONGPASS")


def test_dry_runs_decide_as_the_verbs_do(secured: RespSecured, admin: RespClient) -> None:
    secured.principal("dry", "receive:t:workers", redis=["+@dlsend", "~orders*", "+acl"])
    for words, denied in (
        (("dl.send", "orders1", "0", "x"), None),
        (("dl.send", "else/orders1", "0", "x"), "access the 'else/orders1' key"),
        (("dl.get", "orders1", "id"), "run the 'dl.get' command"),
        (("dl.receive", "t", "1"), "access the 't' key"),
        (("dl.receive", "t", "1", "GROUP", "workers"), None),
        (("acl", "list"), "run the 'acl|list' command"),
        (("acl", "whoami"), None),
        (("ping",), None),
    ):
        reply = admin.call("ACL", "DRYRUN", "dry", *words)
        expected = b"OK" if denied is None else f"This user has no permissions to {denied}".encode()
        assert reply == expected, words


def test_refusals_of_verbs_are_recorded(secured: RespSecured, admin: RespClient) -> None:
    admin.call("ACL", "LOG", "RESET")
    client = secured.user()
    for _ in range(3):
        client.call("DL.STATS", "t")
    client.call("EVAL", "return 1", 0)
    entries = [members(entry) for entry in admin.call("ACL", "LOG")]
    assert [(entry[b"object"], entry[b"count"]) for entry in entries] == [
        (b"eval", 1),
        (b"dl.stats", 3),
    ]
    for number in range(200):
        client.call("GET", f"k{number}") if number % 2 else client.call(f"BITOP{number}")
        client.call("DL.STATS", f"t{number}")
    assert len(admin.call("ACL", "LOG", "1000")) <= 128
