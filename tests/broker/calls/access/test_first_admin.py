"""The first administrator: made once, and never again behind the back of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from delaylog.broker.calls.access.first_admin import FILE, adopt, clear, leave_digest
from delaylog.broker.engine.access.commands import put_principal, revoke
from delaylog.broker.engine.access.grants import parse_grant
from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.access.token_form import digest_of, make_token
from delaylog.broker.engine.errors import BadRequestError
from tests.broker.engine.host import Host

TOKEN = make_token(b"1" * 32)
OTHER = make_token(b"2" * 32)


def test_a_revoked_administrator_does_not_come_back(host: Host) -> None:
    """Its token may still be in the environment when the node starts or leads again."""
    state, now_ms = host.engine.state, host.now_ms
    adopt(state, TOKEN, now_ms)
    assert state.access.by_digest[digest_of(TOKEN)].name == "admin"
    boss = Principal("boss", (parse_grant("admin"),), (Secret(b"boss", now_ms),))
    put_principal(state, boss, now_ms)
    revoke(state, "admin", now_ms)
    adopt(state, TOKEN, now_ms)
    assert sorted(state.access.principals) == ["boss"]


def test_the_environment_replaces_no_token(host: Host) -> None:
    state, now_ms = host.engine.state, host.now_ms
    adopt(state, TOKEN, now_ms)
    adopt(state, OTHER, now_ms)
    assert digest_of(OTHER) not in state.access.by_digest


def test_a_digest_is_adopted_once(host: Host) -> None:
    """A crash after the frame leaves the file: the next start changes nothing, and deletes it."""
    state, now_ms = host.engine.state, host.now_ms
    leave_digest(state.fs, state.folder, TOKEN)
    adopt(state, None, now_ms)
    position = state.position
    adopt(state, None, now_ms)
    assert state.position == position
    clear(state)
    revived = state.access.snapshot()
    adopt(state, None, now_ms)
    clear(state)
    assert state.access.snapshot() == revived


@pytest.mark.parametrize("content", ["", "dlt_token", "ab", "x" * 64])
def test_a_file_without_a_digest_is_named(host: Host, content: str) -> None:
    """It makes no administrator, and does not end the node."""
    state = host.engine.state
    Path(state.folder, FILE).write_text(content)
    with pytest.raises(BadRequestError, match=r"first-admin holds no digest: delete it, or run"):
        adopt(state, TOKEN, host.now_ms)
    assert not state.access.principals


def test_the_owner_of_the_folder_replaces_a_lost_token(host: Host) -> None:
    state, now_ms = host.engine.state, host.now_ms
    adopt(state, TOKEN, now_ms)
    leave_digest(state.fs, state.folder, OTHER)
    adopt(state, TOKEN, now_ms)
    admin = state.access.principals["admin"]
    assert {each.digest: each.expires_ms > now_ms for each in admin.secrets} == {
        digest_of(TOKEN): False,
        digest_of(OTHER): True,
    }
