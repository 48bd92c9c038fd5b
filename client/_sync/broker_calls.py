"""The calls of PlainClient about topics, groups, schedules, jobs, transactions and clusters.

They return the API's JSON unchanged. Each call is carried out once, or raises its failure.

Made from client/_async/broker_calls.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from delaylog.client._sync.carried import carried, carried_anywhere
from delaylog.client.calls import control
from delaylog.client.calls import schedules as schedule_calls
from delaylog.client.calls import targets as target_calls
from delaylog.client.calls import topics as topic_calls
from delaylog.client.calls import transactions as transaction_calls
from delaylog.client.calls.call import Call, Places
from delaylog.client.keywords import TimeLimit

if TYPE_CHECKING:
    from delaylog.client._sync.transport import Transport

T = TypeVar("T")


class BrokerCalls:
    """The calls, as a mixin; the inheriting class provides the connection."""

    _places: Places
    _transport: Transport
    at_once = False
    """Whether calls fail as soon as no node can be reached, and not when their time has passed."""

    def _carry(self, call: Call[T]) -> T:
        return self._transport.carry(replace(call, at_once=True) if self.at_once else call)

    # The cluster and the clock

    def cluster(self, **limits: Unpack[TimeLimit]) -> dict[str, Any]:
        """The cluster as the contacted node sees it. NotFound if the node is in no cluster."""
        status = self._carry(topic_calls.cluster(**limits))
        self._transport.route.learn(status)
        return status

    def leading(self, **limits: Unpack[TimeLimit]) -> dict[str, Any]:
        """The cluster as its leader sees it, or any node while there is no leader."""
        status = self.cluster(**limits)
        leader = status["leader"]
        if leader is None or leader["node"] == status["node"]:
            return status
        self._transport.route.follow(leader["http"])
        return self.cluster(**limits)

    def hand_over(self, to: int | str | None = None, **limits: Unpack[TimeLimit]) -> dict[str, Any]:
        """Hand leadership to another node (None: the fittest). Returns the leader and the pause."""
        self.leading(**limits)
        return self._carry(topic_calls.hand_over(to, **limits))

    def change_members(
        self, action: topic_calls.MembersAction, nodes: Sequence[str], **contact: Any
    ) -> dict[str, Any]:
        """Add, promote, remove, replace or move nodes. Returns the members afterwards.

        `contact`: name, peer, election_port, http, resp of a node to add or move; `force=True` to
        remove a majority of the voters; and `timeout`.
        """
        limits: TimeLimit = {"timeout": contact.pop("timeout", None)}
        self.leading(**limits)
        call = topic_calls.change_members(action, nodes, contact, **limits)
        return self._carry(call)

    clock = carried_anywhere(topic_calls.clock)
    held = carried_anywhere(topic_calls.held)
    hold = carried_anywhere(topic_calls.hold)
    release_hold = carried_anywhere(topic_calls.release_hold)
    overview = carried_anywhere(topic_calls.overview)
    all_schedules = carried_anywhere(topic_calls.all_schedules)
    all_targets = carried_anywhere(topic_calls.all_targets)
    reload = carried_anywhere(topic_calls.reload)

    # Jobs: one change for all messages that match a filter

    begin_job = carried(control.begin_job)
    count_messages = carried(control.count_messages)
    job = carried_anywhere(control.job)
    jobs = carried_anywhere(control.jobs)
    stop_job = carried_anywhere(control.stop_job)

    # Topics, groups, and operations on a whole topic

    topics = carried(topic_calls.topics)
    get_topic = carried(topic_calls.get_topic)
    put_topic = carried(topic_calls.put_topic)
    update_topic = carried(topic_calls.update_topic)
    drop_topic = carried(topic_calls.drop_topic)
    stats = carried(topic_calls.stats)
    forecast = carried(topic_calls.forecast)
    groups = carried(topic_calls.groups)
    put_group = carried(topic_calls.put_group)
    drop_group = carried(topic_calls.drop_group)
    purge = carried(topic_calls.purge)
    pause = carried(topic_calls.pause)
    resume = carried(topic_calls.resume)

    # Recurring schedules

    schedules = carried(schedule_calls.schedules)
    schedule = carried(schedule_calls.schedule)
    put_schedule = carried(schedule_calls.put_schedule)
    update_schedule = carried(schedule_calls.update_schedule)
    drop_schedule = carried(schedule_calls.drop_schedule)
    pause_schedule = carried(schedule_calls.pause_schedule)
    resume_schedule = carried(schedule_calls.resume_schedule)
    run_schedule = carried(schedule_calls.run_schedule)
    backfill_schedule = carried(schedule_calls.backfill_schedule)
    preview_schedule = carried(schedule_calls.preview_schedule)
    try_schedule = carried(schedule_calls.try_schedule)

    # Push targets

    targets = carried(target_calls.targets)
    target = carried(target_calls.target)
    put_target = carried(target_calls.put_target)
    update_target = carried(target_calls.update_target)
    drop_target = carried(target_calls.drop_target)

    # Transactions

    begin = carried_anywhere(transaction_calls.begin)
    stage = carried(transaction_calls.stage)
    commit = carried_anywhere(transaction_calls.commit)
    abort = carried_anywhere(transaction_calls.abort)
    transaction = carried_anywhere(transaction_calls.get)
    transactions = carried_anywhere(transaction_calls.listed)
