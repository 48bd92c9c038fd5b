"""Calls about principals, their tokens, and sessions of browsers."""

from __future__ import annotations

from typing import Final

from delaylog.contract.calls import shapes
from delaylog.contract.calls.call import ApiCall, Takes
from delaylog.contract.members import Choice, Flag, Int, Name, TextList
from delaylog.contract.shape import Shape
from delaylog.contract.times import TimeMs

PRINCIPALS: Final = "/v1/principals"
PRINCIPAL: Final = "/v1/principals/{principal}"
SESSION: Final = "/v1/session"

_RATE_MAX: Final = 1_000_000_000
GRANTS: Final = TextList(
    "grants", "What it may do, each written RIGHTS[:[NAMESPACE/]TOPIC[:GROUP]].", 0, 64
)
CERTIFICATES: Final = TextList(
    "certificates", "Identities in client certificates that prove it, such as dns:NAME.", 0, 16
)
MESSAGES_PER_S: Final = Int("messages_per_s", "Most messages it sends a second.", 0, _RATE_MAX)
CALLS_PER_S: Final = Int("calls_per_s", "Most calls it makes a second.", 0, _RATE_MAX)
EXPIRES_AT_MS: Final = TimeMs(
    "expires_at_ms",
    "When the new token expires; absent: never, or after the lifetime of the one before.",
)
GRACE_MS: Final = Int(
    "grace_ms", "How long the previous token stays valid; absent: a day.", 0, 400 * 86_400_000
)
FINISH: Final = Flag("finish", "Make no token, but end the previous one now.")
SETTINGS: Final = Shape(
    "Principal settings",
    GRANTS,
    CERTIFICATES,
    MESSAGES_PER_S,
    CALLS_PER_S,
    EXPIRES_AT_MS,
)
ROTATION: Final = Shape("Rotation", GRACE_MS, EXPIRES_AT_MS, FINISH)
NOTHING: Final = Shape("Nothing")
MAY: Final = Choice(
    "may",
    "Answer 403, with the reason, to a caller without this right on the topic, or on any topic.",
    ("send", "receive", "read", "bodies", "change", "admin", "operate"),
)
OF_TOPIC: Final = Name("topic", "The topic of may.", 200, shapes.NAME_PATTERN)

OF_ACCESS: Final = (
    ApiCall("listPrincipals", f"GET {PRINCIPALS}", "admin", "All principals.", "Principals"),
    ApiCall("getPrincipal", f"GET {PRINCIPAL}", "admin", "A principal.", "Principal"),
    ApiCall(
        "putPrincipal",
        f"PUT {PRINCIPAL}",
        "admin",
        "Create a principal with a token, or change what an existing one may do.",
        "PrincipalWithToken",
        Takes(SETTINGS),
        problems=(409,),
        other=(201, "PrincipalWithToken"),
        makes=True,
    ),
    ApiCall(
        "rotatePrincipal",
        f"POST {PRINCIPAL}/rotate",
        "admin",
        "Give a principal a new token; the previous one stays valid for a time.",
        "PrincipalWithToken",
        Takes(ROTATION, needed=False),
        problems=(409,),
    ),
    ApiCall(
        "revokePrincipal",
        f"DELETE {PRINCIPAL}",
        "admin",
        "Revoke a principal with all its tokens.",
        "Done",
        problems=(409,),
    ),
    ApiCall(
        "getSession",
        f"GET {SESSION}",
        "any",
        "Who the caller is; with may, whether it has a right.",
        "Session",
        query=(MAY, OF_TOPIC, shapes.NAMESPACE, shapes.GROUP),
        local=True,
        leaderless=True,
    ),
    ApiCall(
        "openSession",
        f"POST {SESSION}",
        "any",
        "Exchange a token for a session, which is in a cookie.",
        "OpenedSession",
        Takes(NOTHING, needed=False),
        problems=(409,),
        other=(201, "OpenedSession"),
        local=True,
    ),
    ApiCall("closeSession", f"DELETE {SESSION}", "any", "End the session.", "Done", local=True),
    ApiCall(
        "makeTicket",
        f"POST {SESSION}/ticket",
        "any",
        "A ticket, valid once and for seconds, for a request that cannot send headers.",
        "Ticket",
        Takes(NOTHING, needed=False),
        local=True,
    ),
)
"""Calls about who may do what."""
