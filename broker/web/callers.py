"""Finds the caller of an HTTP request: by token, session, ticket or client certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from multidict import istr

from delaylog.broker.calls.access.authenticator import FOLLOWER_SECONDS
from delaylog.broker.calls.access.caller import ANYONE, Caller
from delaylog.broker.calls.access.sessions import (
    CSRF_HEADER,
    TICKET,
    Session,
    check_csrf,
    session_secret,
    ticket_secret,
)
from delaylog.broker.calls.answers import Problem
from delaylog.broker.host.tls.contexts import client_certificate

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.web.connection import Connection

_AUTHORIZATION: Final = istr("Authorization")
"""Looked up for every request: the case of an `istr` is folded only once."""
SESSION_ENDED: Final = "the session has ended: log in again"
REVOKED: Final = "the token was revoked or has expired, or its rights have changed"
_NAMES_SHOWN_MAX: Final = 200
"""Length of the names of a certificate in an error. A certificate can have many."""


class Callers:
    """The callers of one HTTP face."""

    def __init__(self, node: ServingNode) -> None:
        self._node = node
        self._authenticator = node.access.authenticator
        self._sessions = node.access.sessions

    async def find(
        self,
        headers: Mapping[str, str],
        connection: Connection,
        query: str,
        *,
        reads: bool,
        leaderless: bool = False,
    ) -> Caller:
        """The caller of a request, which changes nothing if `reads`, and is answered without a
        leader if `leaderless`. Raises a Problem (401, 403, 429 or 503).
        """
        authenticator = self._authenticator
        header = headers.get(_AUTHORIZATION)
        if header is None and authenticator.required:
            caller, session = self._without_header(headers, connection, query, reads=reads)
            authenticator.admit(caller, leaderless=leaderless)
        else:
            session = None
            try:
                caller = self._by_header(header, leaderless=leaderless)
            except Problem as refusal:
                # A follower may get the newest tokens soon, a new leader writes the first one soon.
                soon = "not_ready" if self._node.role.leading else "unauthorized"
                if refusal.code != soon or header is None:
                    raise
                await self._node.pause(FOLLOWER_SECONDS)
                caller = self._by_header(header, leaderless=leaderless)
        connection.caller, connection.session = caller, session
        return caller

    def by_token(self, headers: Mapping[str, str], connection: Connection) -> Caller | None:
        """The caller of a request with a token, or of any request if none is needed; None if
        something else may prove the caller. Raises a Problem.
        """
        if not self._authenticator.required:
            caller = ANYONE
        else:
            header = headers.get(_AUTHORIZATION)
            if header is None:
                return None
            caller = self._by_header(header, leaderless=False)
        connection.caller, connection.session = caller, None
        return caller

    def _by_header(self, header: str | None, *, leaderless: bool) -> Caller:
        authenticator = self._authenticator
        return authenticator.admit(authenticator.by_header(header), leaderless=leaderless)

    def recheck(self, connections: Sequence[Connection]) -> None:
        """Close connections with a call in progress whose caller's rights have changed or ended,
        and end streams whose session has ended.
        """
        now_ms = self._now_ms()
        for connection in connections:
            caller, session, flow = connection.caller, connection.session, connection.flow
            if flow is not None and session is not None and not session.is_open(now_ms):
                flow.end(Problem("unauthorized", SESSION_ENDED))
            if (
                caller is not None
                and connection.is_busy
                and not self._authenticator.is_valid(caller)
            ):
                if flow is not None:
                    flow.end(Problem("unauthorized", REVOKED))
                    continue
                connection.force_close()
                if connection.transport is not None:
                    connection.transport.abort()

    async def end_certified(self) -> None:
        """End the sessions of client certificates, after a client CA was removed."""
        self._sessions.end_certified()

    def _without_header(
        self, headers: Mapping[str, str], connection: Connection, query: str, *, reads: bool
    ) -> tuple[Caller, Session | None]:
        """The caller, and the session that has proved it or has made its ticket."""
        # A ticket goes before a cookie, which the browser adds by itself.
        ticket = ticket_secret(query) if reads else None
        if ticket is not None:
            found = self._sessions.use_ticket(ticket, self._now_ms())
            return self._checked(found.caller), found.maker
        secret = session_secret(headers)
        if secret is not None:
            session = self._of_session(secret, headers, reads=reads)
            return self._checked(session.caller), session
        if connection.transport is not None:
            identities, expires_ms = client_certificate(connection.transport)
            caller = self._authenticator.by_certificate(identities, expires_ms)
            if caller is not None:
                return caller, None
            if identities:
                names = ", ".join(identities)[:_NAMES_SHOWN_MAX]
                raise self._authenticator.unknown(
                    f"no principal has an identity of this certificate: {names}"
                )
        return self._authenticator.by_header(None), None

    def _of_session(self, secret: str, headers: Mapping[str, str], *, reads: bool) -> Session:
        session = self._sessions.find(secret, self._now_ms())
        if session is None:
            raise Problem("unauthorized", SESSION_ENDED)
        if not reads:
            check_csrf(session, headers.get(CSRF_HEADER))
        return session

    def _checked(self, caller: Caller) -> Caller:
        """The caller of a session or a ticket. Raises a Problem if it is not valid any more."""
        if not self._authenticator.is_valid(caller):
            raise Problem("unauthorized", "the token of this session was revoked or has expired")
        return caller

    def _now_ms(self) -> int:
        return self._node.clock.now_ms()


def check_opener(session: Session | None, headers: Mapping[str, str], query: str) -> None:
    """Raise a Problem unless the page that opens a stream by a session is one of this broker.

    A stream leases messages, but is a GET, which any page on another port of the same host can
    make: it sends the cookie, and no `Origin`. One that does send it was checked before.
    """
    if session is None or ticket_secret(query) is not None or "Origin" in headers:
        return
    if headers.get("Sec-Fetch-Site", "").strip().lower() == "same-origin":
        return
    if headers.get(CSRF_HEADER) is None:
        raise Problem(
            "forbidden",
            f"a stream by a browser's session needs Sec-Fetch-Site: same-origin, an Origin, the "
            f"CSRF token in {CSRF_HEADER}, or a ticket in ?{TICKET}=",
        )
    check_csrf(session, headers[CSRF_HEADER])
