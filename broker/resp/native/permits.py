"""Checks a client's rights on a topic before a verb of the delay log does anything.

The principal's permissions decide, as they do for HTTP. A client whose `session.restricted` is None
has all rights and no limits, and is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.access.permitting import check_group, may_settle
from delaylog.broker.engine.topics.groups import DEFAULT_NAME
from delaylog.broker.keyspace.access.rights import Denied
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.resp.native.host import NativeHost, host_of
from delaylog.broker.resp.native.words import topic_key

if TYPE_CHECKING:
    from delaylog.broker.calls.access.caller import Caller
    from delaylog.broker.engine.access.grants import Permissions
    from delaylog.broker.engine.deliver.settling import Receipts
    from delaylog.broker.host.waiters import TopicKey
    from delaylog.broker.keyspace.command import Args, Command
    from delaylog.broker.keyspace.running.run import Run
    from delaylog.contract.calls.call import Right

_RIGHTS: Final[dict[str, Right]] = {
    "dlsend": "send",
    "dlreceive": "receive",
    "dlread": "read",
    "dlchange": "change",
}
"""The right that the verbs of a category need."""


def permit(run: Run, right: Right, key: TopicKey, group: str | None = None) -> None:
    """Raise a Problem unless the client may do this to a group of a topic; None = to all groups.

    It counts as a call of the principal.
    """
    caller: Caller | None = run.session.restricted
    if caller is not None:
        caller.take_call(run.now_ms)
        check_group(caller, host_of(run).node.engine.state, right, key, group)


def permit_messages(run: Run, key: TopicKey, count: int) -> None:
    """Raise a Problem unless the client may send this number of messages to a topic."""
    caller: Caller | None = run.session.restricted
    if caller is None:
        return
    if caller.calls is not None:
        caller.take_call(run.now_ms)
    # The usual answer, without the arguments of a refusal.
    if not caller.permissions.may("send", key):
        caller.check("send", key)
    if caller.messages is not None:
        caller.take_messages(count, run.now_ms)


def permit_settle(
    run: Run, host: NativeHost, key: TopicKey, receipts: list[Receipts]
) -> list[Receipts]:
    """The receipts. Those of groups that the client may not settle get lease 0: they are invalid.

    Raises a Problem if it may settle in no group of the topic.
    """
    caller: Caller | None = run.session.restricted
    if caller is None:
        return receipts
    caller.take_call(run.now_ms)
    caller.check_some_group("receive", key)
    state = host.node.engine.state
    return [
        each if may_settle(caller, state, key, each.lease) else each._replace(lease=0)
        for each in receipts
    ]


def may_see_body(run: Run, key: TopicKey) -> bool:
    """Whether the client may see bodies of messages in the default group of a topic."""
    caller: Caller | None = run.session.restricted
    return caller is None or caller.may("bodies", key, DEFAULT_NAME)


def denied_verb(permissions: Permissions, command: Command, argv: Args) -> Denied | None:
    """Why permissions do not allow a command; None if they do, or if it is no verb of topics."""
    right = next((_RIGHTS[each] for each in command.categories if each in _RIGHTS), None)
    if right is None:
        return None
    try:
        key = topic_key(argv[1])
    except CommandError:
        # The verb refuses the name for everyone.
        return None
    group = DEFAULT_NAME if right == "read" else _named_group(command, argv)
    if permissions.may(right, key, group):
        return None
    if permissions.may_somewhere(right):
        return Denied("key", argv[1])
    return Denied("command", command.name)


def _named_group(command: Command, argv: Args) -> str | None:
    """The group that a receive names; None for other verbs, which concern all groups."""
    if command.name not in (b"dl.receive", b"dl.ackreceive"):
        return None
    upper = [word.upper() for word in argv]
    at = upper.index(b"GROUP") + 1 if b"GROUP" in upper else len(argv)
    return argv[at].decode("utf-8", "replace") if at < len(argv) else DEFAULT_NAME
