"""Principals in the engine: created, changed, rotated, revoked, after a crash, on a follower."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delaylog.broker.engine.access import commands
from delaylog.broker.engine.access.grants import parse_grant
from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.errors import BadRequestError, ConflictError, UnknownError
from delaylog.storage.layout import NEVER_MS
from tests.broker.engine.host import Host
from tests.broker.engine.member import Member

DAY_MS = 86_400_000


def principal(name: str, *grants: str, secret: bytes = b"", **settings: object) -> Principal:
    secrets = (Secret(secret or name.encode(), 1),)
    return replace(Principal(name, tuple(map(parse_grant, grants)), secrets), **settings)  # type: ignore[arg-type]


def full(host: Host) -> list[Principal]:
    """Principals with every member set."""
    everything = principal(
        "carol@example.org",
        "send:orders*",
        "receive:billing/*:workers",
        certificates=("dns:carol.example", "cn:carol"),
        messages_per_s=10,
        calls_per_s=7,
        created_ms=host.now_ms,
    )
    return [principal("root", "admin"), everything]


def test_they_survive_a_checkpoint_and_a_crash(host: Host) -> None:
    state = host.engine.state
    for each in full(host):
        commands.put_principal(state, each, host.now_ms)
    commands.note_used(state, {"root": 5, "nobody": 6}, host.now_ms)
    host.sync()
    host.checkpoint()
    commands.put_principal(state, principal("late", "viewer"), host.now_ms)
    commands.revoke(state, "carol@example.org", host.now_ms)
    host.sync()
    before = state.access.snapshot()
    host.crash()
    table = host.engine.state.access
    assert table.snapshot() == before
    assert sorted(table.principals) == ["late", "root"]
    assert table.used_ms == {"root": 5}
    assert table.by_digest[b"late"].name == "late"
    assert b"carol@example.org" not in table.by_digest
    assert table.certified(["dns:carol.example"]) is None


def test_a_follower_has_them(host: Host, member: Member) -> None:
    for each in full(host):
        commands.put_principal(host.engine.state, each, host.now_ms)
    host.sync()
    member.catch_up(host)
    table = member.engine.state.access
    assert table.snapshot() == host.engine.state.access.snapshot()
    assert table.certified(["uri:x", "cn:carol"]) == full(host)[1]


def test_a_rotation_keeps_two_secrets(host: Host) -> None:
    state, now_ms = host.engine.state, host.now_ms
    commands.put_principal(state, principal("a", "send", secret=b"1"), now_ms)
    for number, until_ms in ((b"2", now_ms + DAY_MS), (b"3", now_ms + 2 * DAY_MS)):
        commands.rotate(state, "a", Secret(number, now_ms), now_ms, previous_until_ms=until_ms)
    (rotated,) = state.access.principals.values()
    assert [each.digest for each in rotated.secrets] == [b"2", b"3"]
    assert [each.expires_ms for each in rotated.secrets] == [now_ms + 2 * DAY_MS, NEVER_MS]
    assert sorted(state.access.by_digest) == [b"2", b"3"]
    commands.end_previous(state, "a", now_ms)
    assert sorted(state.access.by_digest) == [b"3"]


def test_a_rotation_extends_no_expiry(host: Host) -> None:
    state, now_ms = host.engine.state, host.now_ms
    soon = replace(principal("a", "send"), secrets=(Secret(b"1", 1, now_ms + 5),))
    commands.put_principal(state, soon, now_ms)
    commands.rotate(state, "a", Secret(b"2", 2), now_ms, previous_until_ms=now_ms + DAY_MS)
    assert state.access.principals["a"].secrets[0].expires_ms == now_ms + 5


@pytest.mark.parametrize("finish", [True, False])
def test_a_rotation_keeps_the_newest_secret_that_is_valid(host: Host, finish: bool) -> None:
    """The only administrator still uses the old token after the new one has expired."""
    state, now_ms = host.engine.state, host.now_ms
    secrets = (Secret(b"old", 1, now_ms + DAY_MS), Secret(b"new", 2, now_ms + 5))
    root = replace(principal("root", "admin"), secrets=secrets)
    commands.put_principal(state, root, now_ms)
    if finish:
        commands.end_previous(state, "root", now_ms + 6)
        assert list(state.access.by_digest) == [b"old"]
        with pytest.raises(ConflictError, match="last administrator"):
            commands.end_previous(state, "root", now_ms + DAY_MS)
    else:
        fresh = Secret(b"fresh", 3)
        commands.rotate(state, "root", fresh, now_ms + 6, previous_until_ms=now_ms + 100)
        kept = [(each.digest, each.expires_ms) for each in state.access.principals["root"].secrets]
        assert kept == [(b"old", now_ms + 100), (b"fresh", NEVER_MS)]


def test_the_last_administrator_stays(host: Host) -> None:
    state, now_ms = host.engine.state, host.now_ms
    commands.put_principal(state, principal("root", "admin"), now_ms)
    commands.put_principal(state, principal("local", "admin:orders"), now_ms)
    for refused in (
        lambda: commands.revoke(state, "root", now_ms),
        lambda: commands.put_principal(state, principal("root", "viewer"), now_ms),
    ):
        with pytest.raises(ConflictError, match="last administrator"):
            refused()
    expired = replace(principal("expired", "admin"), secrets=(Secret(b"old", 1, now_ms),))
    commands.put_principal(state, expired, now_ms)
    with pytest.raises(ConflictError, match="last administrator"):
        commands.revoke(state, "root", now_ms)
    commands.revoke(state, "expired", now_ms)
    commands.put_principal(state, principal("second", "admin"), now_ms)
    commands.revoke(state, "root", now_ms)
    assert sorted(state.access.principals) == ["local", "second"]


def test_a_certificate_belongs_to_one(host: Host) -> None:
    state, now_ms = host.engine.state, host.now_ms
    first = principal("a", "send", certificates=("dns:x",))
    commands.put_principal(state, first, now_ms)
    commands.put_principal(state, first, now_ms)
    with pytest.raises(ConflictError, match="'dns:x' belongs to principal 'a'"):
        commands.put_principal(state, principal("b", "send", certificates=("dns:x",)), now_ms)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": ""}, "name is a letter"),
        ({"name": "a b"}, "name is a letter"),
        ({"name": "oidc:x"}, "name is a letter"),
        ({"name": "a" * 101}, "name is a letter"),
        ({"name": "a\n"}, "name is a letter"),
        ({"certificates": ("x",)}, "each written uri:"),
        ({"certificates": ("dns:a b",)}, "each written uri:"),
        ({"certificates": tuple(f"dns:{n}" for n in range(17))}, "at most 16"),
        ({"grants": (parse_grant("send"),) * 65}, "at most 64 grants"),
        ({"messages_per_s": -1}, "a rate is 0"),
        ({"calls_per_s": 2_000_000_000}, "a rate is 0"),
    ],
)
def test_wrong_members_are_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(BadRequestError, match=why):
        replace(principal("a", "send"), **change)  # type: ignore[arg-type]


def test_an_unknown_one_is_named(host: Host) -> None:
    with pytest.raises(UnknownError, match="no principal 'x'"):
        commands.revoke(host.engine.state, "x", host.now_ms)
