"""Calls of push targets: where the messages of a group are pushed to, and their members."""

from __future__ import annotations

from typing import Any, Final

from delaylog.contract.calls.call import ApiCall, Takes
from delaylog.contract.members import Choice, Flag, Int, Member, Number, Shape, Text, TextList

TARGET: Final = "/v1/topics/{topic}/groups/{group}/target"
TARGETS: Final = "/v1/topics/{topic}/targets"
URL_BYTES_MAX: Final = 2_048
SECRETS_MAX: Final = 2
BINARY: Final = "binary"
STRUCTURED: Final = "structured"
MODES: Final = (BINARY, STRUCTURED)

UNAUTHENTICATED: Final = (
    "pushes have no credentials; have the receiver verify the Standard Webhooks signature, or a "
    "proxy in front of it that verifies and adds what it asks for"
)
_HINTS: Final = dict.fromkeys(
    ("headers", "authorization", "auth", "username", "password", "token"), UNAUTHENTICATED
)
URL: Final = Text("url", "An https or http URL, which gets a POST for each message.", URL_BYTES_MAX)
_MEMBERS: Final[tuple[Member[Any], ...]] = (
    URL,
    TextList(
        "secrets",
        "One or two secrets (whsec_…) that sign pushes, the newest first; absent: those there are, "
        "else the broker makes one.",
        1,
        SECRETS_MAX,
        length_max=100,
    ),
    Choice(
        "mode",
        "Form of the CloudEvents: binary (attributes as headers; the default) or structured (one "
        "JSON document).",
        MODES,
    ),
    Int("timeout_ms", "How long an attempt may take; default 15 s.", 100, 120_000),
    Int("concurrency", "Attempts that may be in flight; default 10.", 1, 1_000),
    Number("per_second", "Attempts that may begin in a second; absent: any.", 0.001, 1_000_000),
)
PUT_TARGET: Final = Shape("Push target", *_MEMBERS, rules={"required": ["url"]}, hints=_HINTS)
ROTATE: Final = Flag(
    "rotate", "The broker makes a new secret; the newest one so far also signs, until you end it."
)
PUSH: Final = Choice(
    "push", "off: push nothing until it is on; on: push, and forget failures so far.", ("on", "off")
)
UPDATE_TARGET: Final = Shape("Change of a push target", *_MEMBERS, ROTATE, PUSH, hints=_HINTS)

OF_TARGETS: Final = (
    ApiCall(
        "listTargets",
        f"GET {TARGETS}",
        "admin",
        "The push targets of a topic's groups.",
        "Targets",
        lists_groups=True,
    ),
    ApiCall("getTarget", f"GET {TARGET}", "admin", "The push target of a group.", "Target"),
    ApiCall(
        "putTarget",
        f"PUT {TARGET}",
        "admin",
        "Push the messages of a group to a URL.",
        "Target",
        Takes(PUT_TARGET),
        problems=(409, 429),
        other=(201, "Target"),
        makes=True,
    ),
    ApiCall(
        "updateTarget",
        f"PATCH {TARGET}",
        "admin",
        "Change the members of a target that are named; enable, disable or rotate it.",
        "Target",
        Takes(UPDATE_TARGET),
        problems=(409,),
    ),
    ApiCall(
        "deleteTarget",
        f"DELETE {TARGET}",
        "admin",
        "Push nothing more; messages stay in the group.",
        "Done",
        problems=(409,),
    ),
)
"""In any namespace, as the calls of topics."""
