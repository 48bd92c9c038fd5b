"""Checks a client's rights on a topic before a verb of the delay log does anything.

The principal's permissions decide, as they do for HTTP. A client whose `session.restricted` is None
has all rights and no limits, and is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delaylog.broker.calls.access.permitting import check_group, may_settle
from delaylog.broker.engine.topics.groups import DEFAULT_NAME
from delaylog.broker.resp.native.host import NativeHost, host_of

if TYPE_CHECKING:
    from delaylog.broker.calls.access.caller import Caller
    from delaylog.broker.engine.deliver.settling import Receipts
    from delaylog.broker.host.waiters import TopicKey
    from delaylog.broker.keyspace.running.run import Run
    from delaylog.contract.calls.call import Right


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
