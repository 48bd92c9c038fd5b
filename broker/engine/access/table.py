"""The table of principals: part of the state of an engine, changed by ACCESS frames.

An ACCESS frame is a msgpack map with one of these members:

    put      a principal, which replaces the one of its name
    drop     the name of a principal
    used     {name: Unix ms}: last use of principals, a frame in ten minutes and a leadership
    audit    [id, node, lines, chain]: the head of a node's audit log
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from delaylog.broker.engine.access.principals import Principal

AUDIT_HEADS_MAX: Final = 64
"""Audit logs of which the heads are kept, the latest: a node that is replaced has a new one."""


class AccessTable:
    """All principals, by name, secret and certificate."""

    def __init__(self) -> None:
        self.principals: dict[str, Principal] = {}
        self.by_digest: dict[bytes, Principal] = {}
        self.by_certificate: dict[str, Principal] = {}
        self.used_ms: dict[str, int] = {}
        """Last use of each principal, as ACCESS frames record it."""
        self.audit_heads: dict[str, tuple[int, int, str]] = {}
        """Of each audit log, by its random id: the node that wrote it, the number of its lines, and
        the chain of the last one."""
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
        elif "audit" in members:
            log, node, lines, chain = members["audit"]
            self.audit_heads.pop(log, None)
            self.audit_heads[log] = node, lines, chain
            if len(self.audit_heads) > AUDIT_HEADS_MAX:
                del self.audit_heads[next(iter(self.audit_heads))]

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
            "audit": {log: list(head) for log, head in self.audit_heads.items()},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Fill an empty table from a checkpoint."""
        for each in saved["principals"]:
            self._put(Principal.unpack(each))
        self.used_ms = dict(saved["used"])
        self.audit_heads = {log: tuple(head) for log, head in saved["audit"].items()}

    def certified(self, identities: Iterable[str]) -> Principal | None:
        """The principal that one of a certificate's identities proves."""
        found = (self.by_certificate.get(each) for each in identities)
        return next((each for each in found if each is not None), None)
