"""The caller of a call, the checks of its rights and limits, and whether it may make the call.

The call's row in the table of calls decides. A call that names its group in the body or the query
passes here if the caller has the right for some group; its handler checks the group
(`places.permit_group`). A call about no topic passes if the caller has the right for some topic,
and `admin` for all; its handler leaves out what the caller may not see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from delaylog.broker.calls.answers import Problem
from delaylog.broker.engine.access.grants import ALL, Permissions
from delaylog.broker.engine.topics.rates import TokenBucket
from delaylog.contract.calls.call import WATCHING, Right
from delaylog.contract.calls.table import ALL as CALLS
from delaylog.storage.layout import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delaylog.broker.engine.access.principals import Principal
    from delaylog.broker.engine.state import EngineState
    from delaylog.broker.host.waiters import TopicKey
    from delaylog.contract.calls.call import ApiCall


# -------------------------------------------------------------------------------------- callers

FOREIGN_MARK: Final = ":"
"""Part of each name that comes from an issuer. No principal's name contains it."""


class Limit(NamedTuple):
    """A limit of a principal, which all its callers share."""

    per_s: int
    bucket: TokenBucket
    """Its burst is one second."""


class Caller:
    """A recognised caller. One object serves all calls with the same credentials."""

    __slots__ = (
        "calls",
        "digest",
        "expires_ms",
        "is_awaited",
        "messages",
        "name",
        "permissions",
        "principal",
    )

    def __init__(
        self,
        name: str,
        permissions: Permissions,
        *,
        digest: bytes = b"",
        expires_ms: int = NEVER_MS,
    ) -> None:
        """`digest` = that of the secret that proved the caller; empty if none did."""
        self.name = name
        self.permissions = permissions
        self.digest = digest
        self.expires_ms = expires_ms
        """When these credentials expire."""
        self.is_awaited = False
        """Whether it is the first administrator, whom no leader has written to the log yet."""
        self.principal: Principal | None = None
        """The principal as it was when the caller was recognised; None if an issuer proves it."""
        self.calls: Limit | None = None
        """The principal's limit of calls."""
        self.messages: Limit | None = None
        """The principal's limit of sent messages."""

    @property
    def is_foreign(self) -> bool:
        """Whether an OIDC issuer proves the caller, which is then no principal of this broker."""
        return FOREIGN_MARK in self.name

    @property
    def watches(self) -> bool:
        """Whether it may watch the broker, and is answered without a leader."""
        return any(map(self.permissions.may_somewhere, WATCHING))

    @property
    def is_certified(self) -> bool:
        """Whether a client certificate proves the caller."""
        return self.principal is not None and not self.digest

    def check(self, right: Right, key: TopicKey, group: str | None = None) -> None:
        """Raise a Problem unless the caller may do this to a group of a topic; None = to all its
        groups. The text is the same whether the topic exists or not.
        """
        if not self.permissions.may(right, key, group):
            raise self._refusal(right, key, group)

    def check_some_group(self, right: Right, key: TopicKey) -> None:
        """Raise a Problem unless the caller may do this to at least one group of a topic."""
        may = self.permissions
        if not may.may(right, key) and not may.may_in_some_group(right, key):
            raise self._refusal(right, key, None)

    def check_somewhere(self, right: Right) -> None:
        """Raise a Problem unless the caller has the right for some topic, or `right` is `any`."""
        if right != "any" and not self.permissions.may_somewhere(right):
            raise Problem("forbidden", f"{self.name!r} lacks the right {right}", right=right)

    def check_everywhere(self, right: Right) -> None:
        """Raise a Problem unless the caller has the right for every topic and group."""
        if not self.permissions.may_everywhere(right):
            detail = f"{self.name!r} lacks the right {right} on the whole broker"
            raise Problem("forbidden", detail, right=right)

    def may(self, right: Right, key: TopicKey, group: str | None = None) -> bool:
        """Whether the caller may do this to a group of a topic; None = to all its groups."""
        return self.permissions.may(right, key, group)

    def take_messages(self, count: int, now_ms: int) -> None:
        """Count messages to send. Raises a Problem if they exceed the principal's limit."""
        if self.messages is not None:
            _take(self.messages, count, now_ms, "messages")

    def check_interval(self, interval_ms: int) -> None:
        """Raise a Problem if a message each `interval_ms` exceeds the principal's limit."""
        if self.messages is not None and interval_ms * self.messages.per_s < 1_000:
            per_s = self.messages.per_s
            raise Problem(
                "bad_request",
                f"interval_ms {interval_ms} is more than {per_s} messages a second, the limit of "
                f"{self.name!r}: it may be {-(-1_000 // per_s)} and above",
                field="interval_ms",
            )

    def take_call(self, now_ms: int) -> None:
        """Count a call. Raises a Problem if it exceeds the principal's limit."""
        if self.calls is not None:
            _take(self.calls, 1, now_ms, "calls")

    def _refusal(self, right: Right, key: TopicKey, group: str | None) -> Problem:
        namespace, topic = key
        of_group = "" if group is None else f", group {group!r}"
        where = f"topic {topic!r} of namespace {namespace!r}{of_group}"
        detail = f"{self.name!r} lacks the right {right} on {where}"
        return Problem("forbidden", detail, right=right)


def _take(limit: Limit, count: int, now_ms: int, what: str) -> None:
    if count > limit.per_s:
        # Waiting does not help, so this is no `quota`, which clients repeat.
        raise Problem(
            "too_large",
            f"{count} {what} in one request are more than the principal's limit of {limit.per_s} "
            "a second: send fewer at once",
        )
    bucket = limit.bucket
    taken = bucket.take(now_ms, count)
    if taken < count:
        bucket.give_back(taken)
        wait_ms = max(bucket.ready_at_ms(now_ms) - now_ms, 1)
        raise Problem(
            "quota",
            f"the principal's limit of {limit.per_s} {what} a second is used up",
            retry_after_s=-(-wait_ms // 1_000),
        )


ANYONE: Final = Caller("anonymous", ALL)
"""The caller where no authentication is required."""


# --------------------------------------------------------------------------- calls by their row

_OF_SOME_GROUP: Final = {call.name: call.names_group or call.lists_groups for call in CALLS}
"""Calls for which the right for one group of the topic is enough here."""


def permit(caller: Caller, call: ApiCall, key: TopicKey, params: Mapping[str, str]) -> None:
    """Raise a Problem (403) unless the caller may make this call."""
    if caller is ANYONE:
        return
    right = call.right
    if key[1] == "":
        if right == "admin":
            caller.check_everywhere(right)
        else:
            caller.check_somewhere(right)
    elif "group" in params:
        caller.check(right, key, params["group"])
    elif _OF_SOME_GROUP[call.name]:
        caller.check_some_group(right, key)
    else:
        caller.check(right, key)


def check_group(
    caller: Caller, state: EngineState, right: Right, key: TopicKey, name: str | None
) -> None:
    """Raise a Problem unless the caller has the right for a group of a topic; None = for all."""
    if caller.permissions.may(right, key):
        return
    caller.check(right, key, name)
    topic = state.topics.get(key)
    if topic is not None and name is not None and topic.group(name) is None:
        # The refusal of `places` lists groups, whose names this caller must not learn.
        raise Problem("unknown", f"topic {topic.name!r} has no group {name!r}", field="group")


def may_settle(caller: Caller, state: EngineState, key: TopicKey, lease: int) -> bool:
    """Whether a caller may settle the messages of a lease.

    A receipt names no group and can be guessed, so the group of its lease decides.
    """
    if caller.may("receive", key):
        return True
    found = state.leases.get(lease)
    group = None if found is None else state.group(found.topic, found.group)
    return group is not None and caller.may("receive", key, group.name)
