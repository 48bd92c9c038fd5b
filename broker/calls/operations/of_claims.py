"""Calls of a topic's claims, in any namespace."""

from __future__ import annotations

from typing import Final

from delaylog.broker.calls import claim_shapes, claims, shapes
from delaylog.broker.calls.operations.operation import Operation, Takes

CLAIMS: Final = "/v1/topics/{topic}/claims"
CLAIM: Final = "/v1/topics/{topic}/claims/{claim}"

CLAIM_CALLS: Final = (
    Operation(
        "GET",
        CLAIMS,
        claims.list_claims,
        "listClaims",
        "A topic's claims that have not ended.",
        {200: "Claims"},
        problems=(404,),
    ),
    Operation(
        "GET",
        CLAIM,
        claims.get_claim,
        "getClaim",
        "A claim, ended or not.",
        {200: "Claim"},
        query=(shapes.GROUP,),
        problems=(404,),
    ),
    Operation(
        "POST",
        CLAIM,
        claims.make_claim,
        "makeClaim",
        "Hold what is ready under a name; again: the same messages.",
        {200: "Claim"},
        Takes(claim_shapes.MAKE_CLAIM, needed=False),
        problems=(404, 410, 415, 429),
    ),
    Operation(
        "GET",
        f"{CLAIM}/rows",
        claims.read_claim,
        "readClaim",
        "Some of a claim's messages, the same ones each time.",
        {200: "ClaimRows"},
        query=claim_shapes.ROWS,
        problems=(404, 409, 410, 415),
        bulk_answer=True,
        arrow_answer=True,
    ),
    Operation(
        "POST",
        f"{CLAIM}/extend",
        claims.extend_claim_,
        "extendClaim",
        "Hold all of a claim longer.",
        {200: "SettledClaim"},
        Takes(claim_shapes.EXTEND_CLAIM, needed=False),
        problems=(404, 409, 410, 415),
    ),
    *(
        Operation(
            "POST",
            f"{CLAIM}/{action}",
            claims.settle_claim,
            f"{action}Claim",
            doc,
            {200: "SettledClaim"},
            Takes(claim_shapes.SETTLE_CLAIM, needed=False),
            problems=(404, 409, 410, 415),
        )
        for action, doc in (
            ("ack", "End all of a claim as done."),
            ("release", "Give all of a claim back."),
        )
    ),
)
