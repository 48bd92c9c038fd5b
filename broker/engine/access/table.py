"""The table of principals: part of the state of an engine, changed by ACCESS frames.

An ACCESS frame is a msgpack map with one of these members:

    put      a principal, which replaces the one of its name
    drop     the name of a principal
    used     {name: Unix ms}: last use of principals, a frame in ten minutes and a leadership
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from delaylog.broker.engine.access.principals import Principal


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
