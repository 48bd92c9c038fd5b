"""A principal: a name, secrets that prove it, grants, and limits on its rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.access.grants import Grant, Permissions, parse_grant
from delaylog.broker.engine.errors import BadRequestError
from delaylog.storage.layout import NEVER_MS

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z")
GRANTS_MAX: Final = 64
CERTIFICATES_MAX: Final = 16
SECRETS_MAX: Final = 2
"""Secrets of a principal that are valid at the same time: the new and the previous one."""
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
    """Oldest first."""
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

    def with_secret(self, secret: Secret, previous_until_ms: int) -> Principal:
        """The principal with a new secret. Its newest previous one expires at `previous_until_ms`,
        or earlier if it was to expire earlier.
        """
        kept = self.secrets[-(SECRETS_MAX - 1) :]
        kept = tuple(
            each._replace(expires_ms=min(each.expires_ms, previous_until_ms)) for each in kept
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
