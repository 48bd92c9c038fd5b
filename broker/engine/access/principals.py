"""Principals: a name, secrets that prove it, grants, and limits on its rate; and the table of all.

The table is part of the state of an engine, and ACCESS frames change it. Such a frame is a msgpack
map with one of these members:

    put      a principal, which replaces the one of its name
    drop     the name of a principal
    used     {name: Unix ms}: last use of principals, a frame in ten minutes and a leadership
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.access.grants import Grant, Permissions, parse_grant
from delaylog.broker.engine.errors import BadRequestError
from delaylog.storage.layout import NEVER_MS

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z")
GRANTS_MAX: Final = 64
CERTIFICATES_MAX: Final = 16
CERTIFICATE: Final = re.compile(r"(uri|dns|email|cn):[!-~]{1,200}\Z")
RATE_MAX: Final = 1_000_000_000


class Secret(NamedTuple):
    """What is stored of a token."""

    digest: bytes
    created_ms: int
    expires_ms: int = NEVER_MS


@dataclass(frozen=True, slots=True)
class Principal:
    """Someone who may call the broker: a service, a job, a person."""

    name: str
    grants: tuple[Grant, ...]
    secrets: tuple[Secret, ...] = ()
    """Oldest first: the previous one and the new one."""
    certificates: tuple[str, ...] = ()
    """Identities in client certificates that prove the principal, such as `dns:worker.example`."""
    messages_per_s: int = 0
    """Limit of sent messages; 0 = none."""
    calls_per_s: int = 0
    """Limit of calls; 0 = none."""
    created_ms: int = 0
    _permissions: Permissions | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not NAME.match(self.name):
            raise BadRequestError(
                "a principal's name is a letter or digit and up to 99 of A-Z a-z 0-9 . _ @ -",
                field="principal",
            )
        if len(self.grants) > GRANTS_MAX:
            raise BadRequestError(f"a principal has at most {GRANTS_MAX} grants", field="grants")
        if len(self.certificates) > CERTIFICATES_MAX or not all(
            map(CERTIFICATE.match, self.certificates)
        ):
            raise BadRequestError(
                f"certificates are at most {CERTIFICATES_MAX} identities, each written uri:…, "
                "dns:…, email:… or cn:…",
                field="certificates",
            )
        if not all(0 <= rate <= RATE_MAX for rate in (self.messages_per_s, self.calls_per_s)):
            raise BadRequestError(f"a rate is 0, for no limit, to {RATE_MAX}", field="rate")

    @property
    def is_admin(self) -> bool:
        """Whether it may manage principals."""
        return any("admin" in grant.rights and grant.is_unlimited for grant in self.grants)

    @property
    def permissions(self) -> Permissions:
        """The decisions by its grants. All callers share them, so each is cached once."""
        known = self._permissions
        if known is None:
            known = Permissions(self.grants)
            object.__setattr__(self, "_permissions", known)
        return known

    def may_log_in(self, now_ms: int) -> bool:
        """Whether a secret that has not expired, or a certificate, proves it."""
        return bool(self.certificates) or any(each.expires_ms > now_ms for each in self.secrets)

    def secret_of(self, digest: bytes) -> Secret | None:
        """The secret with this digest, expired or not."""
        return next((each for each in self.secrets if each.digest == digest), None)

    def has_rights_of(self, other: Principal) -> bool:
        """Whether another version of this principal has the same rights and limits."""
        return self is other or all(
            getattr(self, name) == getattr(other, name)
            for name in ("grants", "certificates", "messages_per_s", "calls_per_s")
        )

    def newest(self, now_ms: int) -> tuple[Secret, ...]:
        """The newest secret that has not expired, or the newest of all; none if there is none."""
        valid = [each for each in self.secrets if each.expires_ms > now_ms]
        return tuple(valid[-1:]) or self.secrets[-1:]

    def with_secret(self, secret: Secret, now_ms: int, *, previous_until_ms: int) -> Principal:
        """The principal with a new secret. Its newest previous one expires at `previous_until_ms`,
        or earlier if it was to expire earlier.
        """
        kept = (
            each._replace(expires_ms=min(each.expires_ms, previous_until_ms))
            for each in self.newest(now_ms)
        )
        return replace(self, secrets=(*kept, secret))

    def pack(self) -> dict[str, Any]:
        """Its members in a frame or a checkpoint."""
        return {
            "name": self.name,
            "grants": [str(grant) for grant in self.grants],
            "secrets": [list(secret) for secret in self.secrets],
            "certificates": list(self.certificates),
            "messages_per_s": self.messages_per_s,
            "calls_per_s": self.calls_per_s,
            "created_ms": self.created_ms,
        }

    @classmethod
    def unpack(cls, members: Mapping[str, Any]) -> Principal:
        """The principal of a frame or a checkpoint."""
        return cls(
            members["name"],
            tuple(parse_grant(text, stored=True) for text in members["grants"]),
            tuple(Secret(*each) for each in members["secrets"]),
            tuple(members["certificates"]),
            messages_per_s=members["messages_per_s"],
            calls_per_s=members["calls_per_s"],
            created_ms=members["created_ms"],
        )


# ------------------------------------------------------------------------------------ the table


class AccessTable:
    """All principals, by name, secret and certificate."""

    def __init__(self) -> None:
        self.principals: dict[str, Principal] = {}
        self.by_digest: dict[bytes, Principal] = {}
        self.by_certificate: dict[str, Principal] = {}
        self.used_ms: dict[str, int] = {}
        """Last use of each principal, as ACCESS frames record it."""
        self.version = 0
        """Grows with each change of a principal; not state."""

    def apply(self, members: Mapping[str, Any]) -> None:
        """Apply an ACCESS frame."""
        if "put" in members:
            self._put(Principal.unpack(members["put"]))
        elif "drop" in members:
            self._forget(members["drop"])
            self.used_ms.pop(members["drop"], None)
        elif "used" in members:
            self.used_ms |= members["used"]

    def _put(self, principal: Principal) -> None:
        self._forget(principal.name)
        self.principals[principal.name] = principal
        self.by_digest |= {secret.digest: principal for secret in principal.secrets}
        self.by_certificate |= dict.fromkeys(principal.certificates, principal)

    def _forget(self, name: str) -> None:
        self.version += 1
        old = self.principals.pop(name, None)
        if old is not None:
            for secret in old.secrets:
                self.by_digest.pop(secret.digest, None)
            for identity in old.certificates:
                self.by_certificate.pop(identity, None)

    def snapshot(self) -> dict[str, Any]:
        """Its members in a checkpoint."""
        return {
            "principals": [each.pack() for each in self.principals.values()],
            "used": dict(self.used_ms),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Fill an empty table from a checkpoint."""
        for each in saved["principals"]:
            self._put(Principal.unpack(each))
        self.used_ms = dict(saved["used"])

    def certified(self, identities: Iterable[str]) -> Principal | None:
        """The principal that one of a certificate's identities proves."""
        found = (self.by_certificate.get(each) for each in identities)
        return next((each for each in found if each is not None), None)
