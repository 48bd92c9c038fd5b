"""Access control of one node: its authenticator, its sessions, and what a change of principals
requires.

Principals change through the log, on followers too. A timer looks for changes and for expired
secrets, and has the faces close connections whose callers have lost their rights.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.access.authenticator import Authenticator
from delaylog.broker.calls.access.first_admin import adopt, awaited, clear
from delaylog.broker.calls.access.sessions import Sessions
from delaylog.broker.engine.access.commands import note_used
from delaylog.broker.engine.access.token_form import digest_of
from delaylog.broker.engine.errors import BadRequestError, EngineError
from delaylog.storage.layout import NEVER_MS

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

LOOK_SECONDS: Final = 0.25
"""Interval of `look`: part of the second within which a revocation is in force on all nodes."""
USED_MS: Final = 600_000
"""When principals were last used is recorded at most once in this time."""

log = logging.getLogger("delaylog.access")


class Access:
    """All methods belong to the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.authenticator = Authenticator(node)
        self.sessions = Sessions(node.machine.random_bytes)
        self.rechecks: list[Callable[[], None]] = []
        """Each face's function that closes the connections of callers without rights."""
        self._seen: tuple[object, int] = (None, -1)
        self._first_expiry_ms = NEVER_MS
        self._recorded_ms = 0
        self._adopted_at: int | None = None
        """Log position behind the first administrator, once this leadership has written it."""
        self._cleared = False
        self._warned = ""
        self.admin_token: str | None = None
        """The first administrator's token, if the environment gives one."""
        self._compared = False
        """Whether `admin_token` was compared with the principals of the log."""

    def start(self) -> None:
        """Look for changes from now on, until the node stops."""
        self.look()
        self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._run)

    def _run(self) -> None:
        if not self._node.stopping:
            if not self._node.suspended:
                self.look()
            self._look_later()

    def look(self) -> None:
        """Act on changed principals, expired secrets and ended sessions."""
        self.authenticator.look()
        self._adopt_first_admin()
        self._compare_admin_token()
        table = self._node.engine.state.access
        now_ms = self._node.clock.now_ms()
        seen = table, table.version
        some_expired = self.authenticator.some_expired(now_ms)
        some_expired |= self.sessions.some_ended(now_ms)
        if seen != self._seen or now_ms >= self._first_expiry_ms or some_expired:
            self._seen = seen
            self._first_expiry_ms = min(
                (
                    secret.expires_ms
                    for principal in table.principals.values()
                    for secret in principal.secrets
                    if secret.expires_ms > now_ms
                ),
                default=NEVER_MS,
            )
            for recheck in self.rechecks:
                recheck()
        if now_ms - self._recorded_ms >= USED_MS:
            self._recorded_ms = now_ms
            self._record_used(now_ms)

    def _adopt_first_admin(self) -> None:
        """Write the first administrator to the log, once in each leadership."""
        node = self._node
        state = node.engine.state
        if not node.role.leading:
            self._adopted_at, self._cleared = None, False
        elif self._adopted_at is None and node.role.may_dispatch():
            before = state.log.end_position
            try:
                adopt(state, self.admin_token, node.clock.now_ms())
            except EngineError as error:
                if error.detail != self._warned:
                    # It is tried several times a second.
                    self._warned = error.detail
                    log.warning("the first administrator is not in the log yet: %s", error)
                return
            self._adopted_at = state.position
            # The previous leader may have recorded nothing for long.
            self._recorded_ms = 0
            if state.log.end_position > before:
                node.appended()
        elif self._adopted_at is not None and not self._cleared:
            if state.committed() >= self._adopted_at:
                clear(state)
                self._cleared = True

    def expect_first_admin(self, token: str | None) -> None:
        """Know the administrators that the environment (`token`) and `delaylog init` give, until
        the log has a principal. Called before `start`.
        """
        self.admin_token = token
        state = self._node.engine.state
        with suppress(BadRequestError):
            # `adopt` reports a damaged file.
            left = awaited(state.fs, state.folder)
            if left is not None:
                self.authenticator.expect(left)
        if token is not None:
            self.authenticator.expect(digest_of(token))

    def _compare_admin_token(self) -> None:
        """Warn once if the environment's token is not in force, when the principals are known."""
        known = self._node.role.settled and self._node.engine.state.access.principals
        if self._compared or self.admin_token is None or not known:
            return
        self._compared = True
        if not self.authenticator.is_known(f"Bearer {self.admin_token}"):
            log.warning(
                "DELAYLOG_ADMIN_TOKEN of this node is not a valid token: it only makes the first "
                "administrator, and there is one with another token; remove it from this node"
            )

    def _record_used(self, now_ms: int) -> None:
        """Write to the log when principals were last used. A follower keeps its notes: it sends
        them to the leader, and may come to lead.
        """
        node, table = self._node, self._node.engine.state.access
        node.used_ms = {
            name: used_ms
            for name, used_ms in node.used_ms.items()
            if name in table.principals and used_ms > table.used_ms.get(name, 0)
        }
        if node.used_ms and node.role.leading and node.role.may_dispatch():
            # The notes stay until the next time: a failover may lose the frame.
            with suppress(EngineError):
                note_used(node.engine.state, node.used_ms, now_ms)
                node.appended()
