"""Push targets: what is kept of them, and their secrets. Pushes are tested where they are made."""

from __future__ import annotations

import pytest

from delaylog.broker.rules.push_signatures import make_secret
from tests.scenes.faces.face import Face, Refused, needs

URL = "https://example.com/hook?token=x"


@needs("targets")
def test_a_target_is_made_read_changed_and_dropped(face: Face) -> None:
    made = face.plain("put_target", "default", url=URL)
    assert made["secret"].startswith("whsec_")
    shown = face.plain("target", "default")
    assert shown == made | {"secret": None}
    assert shown == {
        "topic": face.topic,
        "namespace": "default",
        "group": "default",
        "url": URL,
        "mode": "binary",
        "timeout_ms": 15_000,
        "concurrency": 10,
        "per_second": None,
        "digests": shown["digests"],
        "secret": None,
        "state": "closed",
        "disabled": "",
        "reason": "",
        "open_until_ms": 0,
        "turns": 0,
        "throttled_until_ms": 0,
        "failing_since_ms": 0,
    }
    change = {"mode": "structured", "per_second": 5, "push": "off"}
    changed = face.plain("update_target", "default", **change)
    assert changed == shown | {
        "mode": "structured",
        "per_second": 5,
        "state": "disabled",
        "disabled": "operator",
    }
    assert face.plain("target", "default") == changed
    # Another URL does not start what an operator has stopped; a put of it neither.
    moved = face.plain("update_target", "default", url="https://example.com/2")
    assert (moved["state"], moved["url"]) == ("disabled", "https://example.com/2")
    assert face.plain("put_target", "default", url=URL)["disabled"] == "operator"
    assert face.plain("target", "default")["state"] == "disabled"
    assert face.plain("update_target", "default", push="on")["state"] == "closed"
    # A put replaces all but the secrets.
    again = face.plain("put_target", "default", url="https://example.com/")
    assert (again["mode"], again["secret"], again["digests"]) == ("binary", None, shown["digests"])
    assert face.plain("drop_target", "default") == {"result": "done"}
    for name in ("target", "drop_target", "update_target"):
        with pytest.raises(Refused, match="unknown"):
            face.plain(name, "default")


@needs("targets", "groups")
def test_targets_are_listed(face: Face) -> None:
    """Of a topic, and of all topics: those that deliver nothing come first."""
    with pytest.raises(Refused, match="unknown"):
        face.plain("targets")
    for group in ("b", "fine", "off"):
        face.put_group(group)
    assert face.plain("targets") == {"targets": []}
    for group in ("fine", "off"):
        face.plain("put_target", group, url=f"https://example.com/{group}")
    face.plain("update_target", "off", push="off")
    listed = face.plain("targets")["targets"]
    assert {each["group"]: each["url"] for each in listed} == {
        "fine": "https://example.com/fine",
        "off": "https://example.com/off",
    }
    assert face.plain("target", "fine") in listed
    listed = face.plain("all_targets")["targets"]
    mine = [(each["group"], each["state"]) for each in listed if each["topic"] == face.topic]
    assert mine == [("off", "disabled"), ("fine", "closed")]
    (first,) = face.plain("all_targets", limit=1)["targets"]
    assert first["state"] != "closed"


@needs("targets")
def test_secrets_rotate(face: Face) -> None:
    secret = make_secret(bytes([1]) * 32)
    given = face.plain("put_target", "default", url=URL, secrets=[secret])
    assert given["secret"] is None
    rotated = face.plain("update_target", "default", rotate=True)
    assert rotated["digests"][1:] == given["digests"]
    again = face.plain("update_target", "default", rotate=True)
    assert again["digests"][1:] == rotated["digests"][:1]
    ended = face.plain("update_target", "default", secrets=[again["secret"]])
    assert (ended["digests"], ended["secret"]) == (again["digests"][:1], None)


@needs("targets", "groups")
def test_a_target_goes_with_its_group(face: Face) -> None:
    with pytest.raises(Refused, match="unknown"):
        face.plain("put_target", "mail", url=URL)
    assert not face.exists()
    for _ in range(2):
        face.put_group("mail")
        with pytest.raises(Refused, match="unknown"):
            face.plain("target", "mail")
        face.plain("put_target", "mail", url=URL)
        face.drop_group("mail")
