"""Recognises the caller of a call by a token or a client certificate.

Authentication is required once the log has a principal. It is required from the start if other
machines reach a listener, or if an administrator's token or an OIDC issuer is configured.

A follower knows the principals of the log that it has applied. So that a revocation is in force
everywhere within a second, a node that has had no leader for a second refuses all callers. It only
answers the calls that watch it (`leaderless` in the table of calls), to callers as last known:
operators need them to find out why there is no leader. A node that has never applied a principal
answers these calls to the token of the first administrator that it was started with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.access.caller import ANYONE, Caller, Limit
from delaylog.broker.calls.access.first_admin import NAME as FIRST_ADMIN
from delaylog.broker.calls.answers import Problem
from delaylog.broker.engine.access.grants import ALL
from delaylog.broker.engine.access.principals import AccessTable, Principal
from delaylog.broker.engine.access.token_form import digest_of
from delaylog.broker.engine.topics.rates import TokenBucket

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

LEADERLESS_SECONDS: Final = 1.0
"""Without a leader for this time, a node may miss a revocation."""
FOLLOWER_SECONDS: Final = 0.25
"""A follower may not have applied the newest tokens: it looks again after this time."""
_KNOWN_MAX: Final = 4_096
"""Number of tokens whose caller is cached."""
_BEARER: Final = "Bearer "
_WATCHING: Final = "only /metrics and GET of /v1/cluster, /v1/clock and /v1/session, and only to "
"""The calls with `leaderless` in the table of calls."""
_NO_PRINCIPALS: Final = (
    "this node knows no principal, since there is no leader yet or it has no data of the leader: "
    f"until then it answers {_WATCHING}its own DELAYLOG_ADMIN_TOKEN, or the token of "
    "`delaylog init` on its data folder"
)
_LEADERLESS: Final = (
    "this node has no leader and may not know the newest revocations: until it has one, it answers "
    f"{_WATCHING}tokens with the right metrics or operate"
)

Foreign = Callable[[str], "Caller | None"]
"""Recognises tokens that this broker has not made, such as those of an OIDC issuer."""


class Authenticator:
    """The callers of one node. All methods belong to the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.always_required = False
        """Authentication is required even while the log has no principal."""
        self.switched_off = False
        """The operator has switched authentication off."""
        self._known: dict[str, Caller] = {}
        self._version = -1
        self._followed: AccessTable | None = None
        """The table from which `_known` was filled; `_version` is its version then."""
        self._limits: dict[tuple[str, str], Limit] = {}
        """By principal, and by `calls` or `messages`."""
        self._leader_seen_s = node.machine.steady_s()
        self._hears = True
        """Whether the newest principals reach this node, as of the last `look`."""
        self._seen_ms = node.clock.now_ms()
        """The time of the last `look`. Reading the clock for each call would cost as much as the
        rest of `by_header`.
        """
        self.foreign: Foreign = lambda token: None
        self._first_admins: dict[bytes, Caller] = {}
        """The first administrator as the environment or `delaylog init` gives it, by digest."""
        self._expiries: set[int] = set()
        """Expiry times (Unix ms) that the table of principals does not have: those of client
        certificates and of issuers' tokens. Both are whole seconds, so the set stays small.
        """

    @property
    def required(self) -> bool:
        """Whether callers have to authenticate."""
        if self.switched_off:
            return False
        return self.always_required or bool(self._node.engine.state.access.principals)

    @property
    def _table(self) -> AccessTable:
        return self._node.engine.state.access

    def expect(self, digest: bytes) -> None:
        """Know the first administrator by this digest, until the log has a principal."""
        self._first_admins[digest] = caller = Caller(FIRST_ADMIN, ALL, digest=digest)
        caller.is_awaited = True

    def look(self) -> None:
        """Note the time, and whether the leader is heard; called several times a second."""
        node, role = self._node, self._node.role
        self._seen_ms = node.clock.now_ms()
        follows = role.leading or role.cluster is None or role.cluster.not_ready() is None
        # A follower may know who was elected, and hear nothing from it.
        self._hears = role.settled and follows
        if self._hears:
            self._leader_seen_s = node.machine.steady_s()

    # ------------------------------------------------------------------ recognising

    def by_header(self, header: str | None) -> Caller:
        """The caller by the value of `Authorization`; `admit` is next. Raises a Problem (401, 503).

        A token that has just expired may still be accepted until the next `look`.
        """
        table = self._table
        if self.switched_off or not (self.always_required or table.principals):
            return ANYONE
        if self._version != table.version or self._followed is not table:
            self._known.clear()
            self._version, self._followed = table.version, table
        caller = None if header is None else self._known.get(header)
        if caller is None or caller.expires_ms <= self._seen_ms:
            caller = self._recognise(header)
        return caller

    def is_known(self, header: str | None) -> bool:
        """Whether this value of `Authorization` proves a caller; asked also without a leader."""
        if not self.required:
            return True
        try:
            self._recognise(header)
        except Problem:
            return False
        return True

    def by_token(self, token: str) -> Caller | None:
        """The caller of a token; None if it is not valid. Raises a Problem (429 or 503)."""
        caller = self._of_token(token, self._node.clock.now_ms())
        if caller is not None:
            return self.admit(caller)
        if self._awaits_principals:
            raise Problem("not_ready", _NO_PRINCIPALS, begun=False)
        return None

    def by_certificate(self, identities: Iterable[str], expires_ms: int) -> Caller | None:
        """The caller by the identities in a verified client certificate; None if it has none.
        `admit` is next.

        Raises a Problem (401). The handshake has checked the certificate, but a connection may
        outlive it.
        """
        principal = self._table.certified(identities)
        if principal is None:
            return None
        if expires_ms <= self._node.clock.now_ms():
            raise Problem("unauthorized", "the client certificate has expired")
        self._expiries.add(expires_ms)
        return self._caller(principal, b"", expires_ms)

    def some_expired(self, now_ms: int) -> bool:
        """Whether a certificate or a token of an issuer has expired since the last call."""
        expired = {each for each in self._expiries if each <= now_ms}
        self._expiries -= expired
        return bool(expired)

    def is_valid(self, caller: Caller) -> bool:
        """Whether a caller that was recognised earlier still has the same rights."""
        if caller is ANYONE:
            return not self.required
        now_ms = self._node.clock.now_ms()
        if caller.expires_ms <= now_ms:
            return False
        if caller.is_foreign:
            return True
        if caller.is_awaited:
            return not self._table.principals
        principal, old = self._table.principals.get(caller.name), caller.principal
        if principal is None or old is None or not principal.has_rights_of(old):
            return False
        if not caller.digest:
            return True
        secret = principal.secret_of(caller.digest)
        return secret is not None and secret.expires_ms > now_ms

    def _recognise(self, header: str | None) -> Caller:
        if header is None or not header.startswith(_BEARER):
            raise Problem("unauthorized", "a token is needed: send Authorization: Bearer TOKEN")
        caller = self._of_token(header[len(_BEARER) :].strip(), self._node.clock.now_ms())
        if caller is None:
            raise self.unknown("the token is not valid: unknown, expired or revoked")
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[header] = caller
        return caller

    def unknown(self, detail: str) -> Problem:
        """The refusal of credentials that prove nobody: 401, or 503 while nobody can be known."""
        if self._awaits_principals:
            return Problem("not_ready", _NO_PRINCIPALS, begun=False)
        return Problem("unauthorized", detail)

    @property
    def _awaits_principals(self) -> bool:
        """Whether the principals are still to come from a leader. A log may have none for ever,
        where an OIDC issuer proves all callers.
        """
        role = self._node.role
        if self._table.principals or role.cluster is None:
            return False
        return bool(self._first_admins) or role.cluster.not_ready() is not None

    def _of_token(self, token: str, now_ms: int) -> Caller | None:
        digest = digest_of(token)
        principal: Principal | None = self._table.by_digest.get(digest)
        if principal is None:
            foreign = self.foreign(token)
            if foreign is not None:
                self._expiries.add(foreign.expires_ms)
                return foreign
            return self._first_admins.get(digest) if self._awaits_principals else None
        secret = principal.secret_of(digest)
        if secret is None or secret.expires_ms <= now_ms:
            return None
        return self._caller(principal, digest, secret.expires_ms)

    def _caller(self, principal: Principal, digest: bytes, expires_ms: int) -> Caller:
        caller = Caller(principal.name, principal.permissions, digest=digest, expires_ms=expires_ms)
        caller.principal = principal
        caller.calls = self._limit(principal.name, "calls", principal.calls_per_s)
        caller.messages = self._limit(principal.name, "messages", principal.messages_per_s)
        return caller

    def _limit(self, name: str, what: str, per_s: int) -> Limit | None:
        """The limit that all callers of a principal share; None if it has none."""
        if not per_s:
            return None
        limit = self._limits.get((name, what))
        if limit is None or limit.per_s != per_s:
            limit = self._limits[name, what] = Limit(per_s, TokenBucket(per_s, per_s))
        return limit

    def admit(self, caller: Caller, *, leaderless: bool = False) -> Caller:
        """Count a call of this caller, and return it. `leaderless`: the call is answered without a
        leader. Raises a Problem (429 or 503).
        """
        if caller is ANYONE:
            return caller
        node = self._node
        if caller.is_awaited:
            if not leaderless:
                raise Problem("not_ready", _NO_PRINCIPALS, begun=False)
            return caller
        if not (self._hears and node.role.settled):
            self.look()
            away_s = node.machine.steady_s() - self._leader_seen_s
            if away_s > LEADERLESS_SECONDS and not (leaderless and caller.watches):
                raise Problem("not_ready", _LEADERLESS, begun=False)
        node.used_ms[caller.name] = self._seen_ms
        if caller.calls is not None:
            caller.take_call(node.clock.now_ms())
        return caller
