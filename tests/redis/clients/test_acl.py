"""Users: made, asked about, limited and removed with redis-py's methods and redis-cli."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.redis.servers import DELAYLOG, RedisServer

PASSWORD = "a-password-of-24-letters"
OTHER = "another-one-of-24-letter"


@pytest.fixture
def guarded(start_server: Callable[..., RedisServer]) -> RedisServer:
    """A server whose administrator has a password."""
    return start_server(password=PASSWORD)


@pytest.fixture
def admin(guarded: RedisServer, wire: dict[str, Any]) -> Iterator[redis.Redis]:
    with guarded.client(decode_responses=True, **wire) as client:
        yield client


def make(admin: redis.Redis, name: str = "shop", **rules: Any) -> None:
    """A user with a password."""
    assert admin.acl_setuser(name, enabled=True, passwords=[f"+{OTHER}"], **rules) is True


def get_often(client: redis.Redis) -> None:
    """Until the server has closed the connection, and its user may not log in again."""
    for _ in range(100):
        client.get("k")


def test_a_user_is_made_and_shown(admin: redis.Redis) -> None:
    make(admin, categories=["+@read"], commands=["-mget"], keys=["jobs:*"], channels=["news:*"])
    shown = admin.acl_getuser("shop")
    assert "on" in shown["flags"]
    assert "~jobs:*" in shown["keys"]
    assert "&news:*" in shown["channels"]
    assert shown["selectors"] == []
    assert "shop" in admin.acl_users()
    assert any(line.startswith("user shop on ") for line in admin.acl_list())
    assert admin.acl_getuser("nobody") is None
    assert "read" in admin.acl_cat()
    assert "mget" in admin.acl_cat("read")


def test_a_user_is_limited(guarded: RedisServer, admin: redis.Redis, wire: dict[str, Any]) -> None:
    make(admin, commands=["+get", "+set", "+multi", "+exec", "+acl|whoami"], keys=["jobs:*"])
    with guarded.client(username="shop", password=OTHER, decode_responses=True, **wire) as shop:
        assert shop.acl_whoami() == "shop"
        assert shop.set("jobs:1", "x") is True
        for refused in (lambda: shop.get("other"), lambda: shop.delete("jobs:1")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                refused()
        with pytest.raises(redis.exceptions.NoPermissionError), shop.pipeline() as pipe:
            pipe.set("jobs:1", "y").get("other").execute()
        assert shop.get("jobs:1") == "x"
        with pytest.raises(redis.exceptions.NoPermissionError):
            shop.acl_list()


def test_dry_runs(admin: redis.Redis) -> None:
    make(admin, commands=["+get", "+set"], keys=["jobs:*"])
    assert admin.acl_dryrun("shop", "get", "jobs:1") == "OK"
    key = admin.acl_dryrun("shop", "get", "x")
    assert key == "This user has no permissions to access the 'x' key"
    command = admin.acl_dryrun("shop", "del", "jobs:1")
    assert command == "This user has no permissions to run the 'del' command"
    with pytest.raises(redis.ResponseError, match="User 'nobody' not found"):
        admin.acl_dryrun("nobody", "get", "x")


def test_refusals_are_recorded(guarded: RedisServer, admin: redis.Redis) -> None:
    make(admin, commands=["+get"], keys=["jobs:*"])
    assert admin.acl_log_reset() is True
    with guarded.client(username="shop", password=OTHER) as shop:
        for refused in (lambda: shop.get("hidden"), lambda: shop.delete("x")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                refused()
    with (
        guarded.client(username="shop", password="wrong", retry=None) as wrong,
        pytest.raises(redis.AuthenticationError),
    ):
        wrong.ping()
    entries = admin.acl_log()
    kept = [
        (entry["reason"], entry["object"], entry["username"])
        for entry in entries
        if entry["object"] not in ("ping", "client|setinfo")
    ]
    assert ("auth", "AUTH", "shop") in kept or ("auth", "HELLO", "shop") in kept
    assert ("key", "hidden", "shop") in kept
    assert ("command", "del", "shop") in kept
    assert all(entry["count"] >= 1 and "id" in entry["client-info"] for entry in entries)
    assert len(admin.acl_log(count=1)) == 1


def test_a_password_is_exchanged(guarded: RedisServer, admin: redis.Redis) -> None:
    make(admin, commands=["+get", "+ping"], keys=["*"])
    new = "a-new-one-of-25-letters!!"
    assert admin.acl_setuser("shop", enabled=True, passwords=[f"+{new}", f"-{OTHER}"]) is True
    with guarded.client(username="shop", password=new) as shop:
        assert shop.get("k") is None
    with (
        guarded.client(username="shop", password=OTHER, retry=None) as shop,
        pytest.raises(redis.AuthenticationError),
    ):
        shop.ping()


def test_a_user_is_removed(guarded: RedisServer, admin: redis.Redis) -> None:
    make(admin, commands=["+get", "+ping"], keys=["*"])
    with guarded.client(username="shop", password=OTHER, retry=None) as shop:
        assert shop.get("k") is None
        assert admin.acl_deluser("shop", "nobody") == 1
        with pytest.raises(redis.RedisError):
            get_often(shop)
    assert "shop" not in admin.acl_users()
    with pytest.raises(redis.ResponseError, match="'default' user cannot be removed"):
        admin.acl_deluser("default")


def test_rules_are_refused_by_name(admin: redis.Redis, server_kind: str) -> None:
    for rule, why in (
        ("+nosuch", "Unknown command or category name in ACL"),
        ("+@nosuch", "Unknown command or category name in ACL"),
        ("frob", "Syntax error"),
        ("%x~a", "Syntax error"),
    ):
        with pytest.raises(redis.ResponseError) as refused:
            admin.execute_command("ACL", "SETUSER", "u", rule)
        assert str(refused.value) == f"Error in ACL SETUSER modifier '{rule}': {why}"
    if server_kind == DELAYLOG:
        assert "u" not in admin.acl_users()


def test_passwords_are_generated(admin: redis.Redis) -> None:
    assert len(admin.acl_genpass()) == 64
    assert len(admin.acl_genpass(bits=20)) == 5


def test_redis_cli(guarded: RedisServer) -> None:
    made = ["on", f">{OTHER}", "+@read", "+@connection", "~jobs:*"]
    assert guarded.cli("ACL", "SETUSER", "typist", *made) == "OK\n"
    assert "typist" in guarded.cli("ACL", "USERS")
    assert guarded.cli("ACL", "DRYRUN", "typist", "get", "jobs:1") == "OK\n"
    login = ("--no-auth-warning", "--user", "typist", "--pass", OTHER)
    assert guarded.cli(*login, "GET", "jobs:1") == "\n"
    assert guarded.cli(*login, "GET", "x").startswith("NOPERM this user has no permissions")
    assert guarded.cli("ACL", "DELUSER", "typist") == "1\n"
