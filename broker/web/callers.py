"""Finds the caller of an HTTP request: by token, session, ticket or client certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from multidict import istr

from delaylog.broker.calls.access.authenticating import FOLLOWER_SECONDS
from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.access.sessions import (
    CSRF_HEADER,
    check_csrf,
    session_secret,
    ticket_secret,
)
from delaylog.broker.calls.problems import Problem
from delaylog.broker.host.tls.client_certificates import client_certificate

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.web.connection import Connection

_AUTHORIZATION: Final = istr("Authorization")
"""Looked up for every request: the case of an `istr` is folded only once."""
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
        self, headers: Mapping[str, str], connection: Connection | None, query: str, *, reads: bool
    ) -> Caller:
        """The caller of a request, which changes nothing if `reads`. Raises a Problem (401, 403,
        429 or 503).
        """
        authenticator = self._authenticator
        header = headers.get(_AUTHORIZATION)
        if header is None and authenticator.required:
            caller = self._without_header(headers, connection, query, reads=reads)
        else:
            try:
                caller = authenticator.by_header(header)
            except Problem as refusal:
                if refusal.code != "unauthorized" or header is None or self._node.role.leading:
                    raise
                await self._node.pause(FOLLOWER_SECONDS)
                caller = authenticator.by_header(header)
        if connection is not None:
            connection.caller = caller
        return caller

    def recheck(self, connections: list[Connection]) -> None:
        """Close connections with a call in progress whose caller's rights have changed or ended."""
        for connection in connections:
            caller = connection.caller
            if (
                caller is not None
                and connection.is_busy
                and not self._authenticator.is_valid(caller)
            ):
                if connection.flow is not None:
                    connection.flow.end(Problem("unauthorized", REVOKED))
                    continue
                connection.force_close()
                if connection.transport is not None:
                    connection.transport.abort()

    async def end_certified(self) -> None:
        """End the sessions of client certificates, after a client CA was removed."""
        self._sessions.end_certified()

    def _without_header(
        self, headers: Mapping[str, str], connection: Connection | None, query: str, *, reads: bool
    ) -> Caller:
        secret = session_secret(headers)
        if secret is not None:
            return self._of_session(secret, headers, reads=reads)
        ticket = ticket_secret(query) if reads else None
        if ticket is not None:
            return self._checked(self._sessions.use_ticket(ticket, self._now_ms()))
        if connection is not None and connection.transport is not None:
            identities, expires_ms = client_certificate(connection.transport)
            caller = self._authenticator.by_certificate(identities, expires_ms)
            if caller is not None:
                return caller
            if identities:
                names = ", ".join(identities)[:_NAMES_SHOWN_MAX]
                raise Problem(
                    "unauthorized", f"no principal has an identity of this certificate: {names}"
                )
        return self._authenticator.by_header(None)

    def _of_session(self, secret: str, headers: Mapping[str, str], *, reads: bool) -> Caller:
        session = self._sessions.find(secret, self._now_ms())
        if session is None:
            raise Problem("unauthorized", "the session has ended: log in again")
        if not reads:
            check_csrf(session, headers.get(CSRF_HEADER))
        return self._checked(session.caller)

    def _checked(self, caller: Caller) -> Caller:
        """The caller of a session or a ticket. Raises a Problem if it is not valid any more."""
        if not self._authenticator.is_valid(caller):
            raise Problem("unauthorized", "the token of this session was revoked or has expired")
        return self._authenticator.admit(caller)

    def _now_ms(self) -> int:
        return self._node.clock.now_ms()
