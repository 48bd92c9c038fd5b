"""Passwords: redis-py and redis-cli log in, and are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.redis.servers import DELAYLOG, RedisServer

PASSWORD = "a-password-of-24-letters"


def test_a_login(
    start_server: Callable[..., RedisServer], server_kind: str, wire: dict[str, Any]
) -> None:
    server = start_server(password=PASSWORD)
    with server.client(decode_responses=True, **wire) as client:
        assert client.set("k", "v") is True
        assert client.acl_whoami() == ("admin" if server_kind == DELAYLOG else "default")
    for wrong in ("wrong", None):
        with (
            server.client(**{"password": wrong, "retry": None, **wire}) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.get("k")
    assert server.cli("GET", "k") == "v\n"
    server.password = None
    assert server.cli("GET", "k").startswith("NOAUTH")
