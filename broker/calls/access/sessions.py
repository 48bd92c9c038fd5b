"""Sessions of browsers, and tickets for streams that cannot send headers.

A page must not keep a token: any script in it could read it. So a browser exchanges its token for a
session, whose secret is in a cookie that scripts cannot read. Because the browser sends the cookie
by itself, calls that change something also need the session's CSRF token in a header. A ticket is
part of a URL, which logs may show, so it is valid once and expires in seconds. When a session ends,
so do its tickets and the streams that it or they have opened.

Sessions belong to one node and end with its process: cookies are bound to the node's host anyway.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.answers import Problem
from delaylog.broker.engine.access.token_form import digest_of
from delaylog.storage.layout import NEVER_MS

COOKIE: Final = "delaylog-session"
CSRF_HEADER: Final = "Delaylog-CSRF"
TICKET: Final = "ticket"
"""The query parameter that carries a ticket."""
SESSION_MS: Final = 8 * 3_600_000
TICKET_MS: Final = 30_000
SESSIONS_MAX: Final = 10_000
"""A further session or ticket ends the oldest one."""
SESSIONS_EACH_MAX: Final = 100
"""The same of one principal, so that it cannot end those of others."""
SECRET_BYTES: Final = 32
_SECRET: Final = r"([A-Za-z0-9_-]{43})"
"""A secret is `SECRET_BYTES` in base64url."""
_COOKIE: Final = re.compile(rf"(?:^|[; ]){COOKIE}={_SECRET}(?:;|$)")
_TICKET: Final = re.compile(rf"(?:^|&){TICKET}=([!-%'-~]*)(?:&|$)")
"""Strangers choose the headers and queries in which these are searched. A general parser of cookies
or queries would take more than ten milliseconds of the loop for 8 KB.
"""


@dataclass(slots=True, eq=False)
class Session:
    """One browser that has logged in; or a ticket, which is one for a single request."""

    caller: Caller
    csrf: str
    expires_ms: int
    maker: Session | None = None
    """The session in which a ticket was made, if it was made in one."""
    ended: bool = False
    """Whether it was ended before it expires."""

    def is_open(self, now_ms: int) -> bool:
        """Whether it has neither ended nor expired, nor has the session of a ticket."""
        here = not self.ended and now_ms < self.expires_ms
        return here and (self.maker is None or self.maker.is_open(now_ms))


class Sessions:
    """All sessions and tickets of a node. Only digests of their secrets are kept."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._sessions: dict[bytes, Session] = {}
        self._tickets: dict[bytes, Session] = {}
        self._some_ended = False
        self._first_expiry_ms = NEVER_MS

    def open(self, caller: Caller, now_ms: int) -> tuple[str, Session]:
        """Begin a session; returns the cookie's value and the session."""
        secret, csrf = self._secret(), self._secret()
        expires_ms = min(now_ms + SESSION_MS, caller.expires_ms)
        session = Session(caller, csrf, expires_ms)
        self._first_expiry_ms = min(self._first_expiry_ms, expires_ms)
        self._keep(self._sessions, digest_of(secret), session)
        return secret, session

    def find(self, secret: str, now_ms: int) -> Session | None:
        """The session of a cookie, if it has not ended."""
        session = self._sessions.get(digest_of(secret))
        return session if session is not None and session.is_open(now_ms) else None

    def close(self, secret: str) -> None:
        """End a session."""
        digest = digest_of(secret)
        if digest in self._sessions:
            self._end(self._sessions, digest)

    def some_ended(self, now_ms: int) -> bool:
        """Whether a session has ended or expired since the last call; it forgets the expired."""
        if now_ms >= self._first_expiry_ms:
            for digest in [d for d, each in self._sessions.items() if each.expires_ms <= now_ms]:
                self._end(self._sessions, digest)
            left = (each.expires_ms for each in self._sessions.values())
            self._first_expiry_ms = min(left, default=NEVER_MS)
        some, self._some_ended = self._some_ended, False
        return some

    def end_certified(self) -> None:
        """End the sessions and the tickets of all callers that a certificate proves."""
        for table in (self._sessions, self._tickets):
            for digest in [known for known, each in table.items() if each.caller.is_certified]:
                self._end(table, digest)

    def make_ticket(self, caller: Caller, maker: Session | None, now_ms: int) -> tuple[str, int]:
        """A ticket for one request of this caller, and when it ends. `maker` = the session of the
        call that makes it, if it has one.
        """
        secret = self._secret()
        expires_ms = min(now_ms + TICKET_MS, caller.expires_ms)
        ticket = Session(caller, "", expires_ms, maker)
        self._keep(self._tickets, digest_of(secret), ticket)
        return secret, expires_ms

    def use_ticket(self, secret: str, now_ms: int) -> Session:
        """The ticket, which cannot be used again. Raises a Problem."""
        ticket = self._tickets.pop(digest_of(secret), None)
        if ticket is None or not ticket.is_open(now_ms):
            raise Problem(
                "unauthorized",
                "the ticket is not valid: unknown, used or expired, or its session has ended",
            )
        return ticket

    def _end(self, table: dict[bytes, Session], digest: bytes) -> None:
        table.pop(digest).ended = self._some_ended = True

    def _keep(self, table: dict[bytes, Session], digest: bytes, session: Session) -> None:
        name = session.caller.name
        own = [known for known, each in table.items() if each.caller.name == name]
        if len(own) >= SESSIONS_EACH_MAX:
            self._end(table, own[0])
        elif len(table) >= SESSIONS_MAX:
            self._end(table, next(iter(table)))
        table[digest] = session

    def _secret(self) -> str:
        return urlsafe_b64encode(self._random_bytes(SECRET_BYTES)).decode().rstrip("=")


def session_secret(headers: Mapping[str, str]) -> str | None:
    """The secret in the session's cookie; None without one."""
    text = headers.get("Cookie")
    found = None if text is None else _COOKIE.search(text)
    return None if found is None else found[1]


def ticket_secret(query: str) -> str | None:
    """The ticket in a query, which need not be one; None without one."""
    found = _TICKET.search(query)
    return None if found is None else found[1]


def check_csrf(session: Session, header: str | None) -> None:
    """Raise a Problem unless the header has the session's CSRF token."""
    if header is None or not compare_digest(digest_of(header), digest_of(session.csrf)):
        raise Problem(
            "forbidden", f"a call of a browser's session needs its CSRF token in {CSRF_HEADER}"
        )
