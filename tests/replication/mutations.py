"""Deliberate faults: each breaks exactly one rule of the real classes, to show that it is watched.

A mutation replaces one or two small methods while its schedules run. The names of section one are
those of the protocol's description; the others break rules that the code adds to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partialmethod
from typing import Any
from unittest.mock import patch

from delaylog.replication import campaign
from delaylog.replication.campaign import Campaign, Candidate, Voter
from delaylog.replication.configuration import Configuration
from delaylog.replication.follower import Follower
from delaylog.replication.leader import DispatchOrder, Gate, Handover, Leader
from delaylog.replication.messages import Readmit
from delaylog.replication.meta import Meta
from delaylog.replication.node import ReplicationNode
from delaylog.storage.layout import EPOCH_NODE_BITS
from tests.replication.sim_node import SimNode

Patch = tuple[Any, str, Any]


# --------------------------------------------------------------------------- the log


def _volatile_promise(self: Voter, epoch: int) -> None:
    self._meta.meta = self._meta.meta.promise(epoch)
    self._owed = None


def _bare_promise(self: Voter, epoch: int) -> None:
    if epoch > self.promised:
        self._meta.save(self._meta.meta.promise(epoch))
    self._owed = None


def _always_cut(take: Any) -> Any:
    def cut_first(self: Follower, data: bytes, position: int, frames: Any) -> None:
        if position < self._log.end:
            self._log.cut(position)
        take(self, data, position, frames)

    return cut_first


def _longest(self: Candidate) -> int:
    return max(self.promises, key=lambda node: (self.promises[node].end, node == self._node))


def _own(self: Candidate) -> int:
    return self._node


def _voting_learner(cls: type[Meta], cluster_id: bytes, node_id: int, members: Any) -> Meta:
    return cls(cluster_id, node_id, members)


# --------------------------------------------------------------------------- tick and dispatch


def _own_tick(self: Candidate) -> Any:
    return self.promises[self._node].tick


def _tick_of_any_epoch(self: Candidate) -> Any:
    return max((p.tick for p in self.promises.values()), key=lambda tick: (tick[1:], tick[0]))


def _take_without_ci(self: DispatchOrder, commit: int) -> tuple[int, int]:
    start = self.looked
    if not getattr(self, "began", False):
        self.began, start = True, max(commit, self.looked)
    self.looked = max(self.looked, commit)
    return start, self.looked


def _publish_first(self: DispatchOrder, second: int, local_index: int) -> None:
    self._step = (second, local_index)
    self._put(self.tick._replace(second=second, local_index=local_index))


def _take_uncommitted(self: SimNode, leader: Leader) -> int:
    return self.disk.log.end


def _publish_uncommitted(self: Leader, tick: Any) -> None:
    self._ticks.write(tick)
    self._tick_seq = self.gate.seq + 1


def _publish_seconds_only(self: Leader, tick: Any) -> None:
    moved = tick[1:3] != self._ticks.tick[1:3]
    self._ticks.write(tick)
    if moved:
        self._tick_seq = self.gate.seq + 1


def _give_without_ci(give: Any) -> Any:
    def without(self: Handover, leader: Leader, log: Any) -> Any:
        return give(self, leader, log)._replace(tick=leader.order.tick._replace(position=0))

    return without


# --------------------------------------------------------------------------- rules of the code


def _commit_unverified(self: Follower, commit: int) -> None:
    self.commit = max(self.commit, min(commit, self._log.end))


def _readmit_at_once(self: Leader, peer: int) -> bool:
    self._send(peer, Readmit(self.epoch, 0))
    return True


def _may_readmit(self: Leader, peer: int, *, fresh: bool) -> bool:
    """By the rule for learners; `fresh` = with what it asks of the other voters."""
    one = self.progress.get(peer)
    if one is None or one.counts or not self.serving or one.match < self.commit:
        return False
    others = self.progress.items()
    return not fresh or self.agree(n for n, each in others if each.seq > one.learner_seq)


def _learner_at_once(may_readmit: Any) -> Any:
    def at_once(self: Leader, peer: int) -> bool:
        if peer in self.configuration.learners:
            return _may_readmit(self, peer, fresh=False)
        return bool(may_readmit(self, peer))

    return at_once


def _reconnect_unnoticed(self: Leader, peer: int) -> None:
    one = self.progress[peer]
    one.known = False
    one.next = one.match or self.begin_start


def _reached_by_voters(reached: Any) -> Any:
    def without_outgoing(self: Configuration, values: Any) -> Any:
        return reached(replace(self, outgoing=()), values)

    return without_outgoing


def _change_anyway(self: Candidate, last_epoch: int, configuration: Configuration) -> Configuration:
    return configuration if self.change is None else self.change.configuration


def _adopted_by_whom_it_asked(adopted: Any) -> Any:
    def without_others(self: Candidate, configuration: Configuration, promise: Any) -> bool:
        return adopted(self, self._configuration, promise)

    return without_others


def _no_fit(self: Follower, message: Any) -> bool:
    return message.prev_offset <= self._log.end


MUTATIONS: dict[str, list[Patch]] = {
    "no_begin_commit": [(Leader, "_may_commit", lambda self, position: True)],
    "no_adopt": [(Candidate, "_best", _own)],
    "len_only": [(Candidate, "_best", _longest)],
    "prepare_minority": [(Candidate, "enough", lambda self: True)],
    "blank_votes": [(Meta, "learner", classmethod(_voting_learner))],
    "truncate_always": [(Follower, "_take", _always_cut(Follower._take))],
    "same_epoch": [
        (campaign, "make_epoch", lambda counter, node: counter << EPOCH_NODE_BITS),
        (Voter, "may_promise", lambda self, epoch: epoch >= self.promised),
        (Voter, "promise", _bare_promise),
        (ReplicationNode, "_check_owner", lambda self, source, epoch: None),
    ],
    "promise_volatile": [(Voter, "promise", _volatile_promise)],
    "no_fence": [(Voter, "follows", lambda self, epoch: True)],
    "ack_before_sync": [(Follower, "_acknowledged", lambda self: self.verified)],
    "fetch_unfenced": [
        (Voter, "_shows", lambda self, epoch: True),
        (Campaign, "_uses", lambda self, candidate, source, message: candidate.best == source),
    ],
    "disp_uncommitted": [
        (SimNode, "_committed", _take_uncommitted),
        (Leader, "_publish", _publish_uncommitted),
    ],
    "tick_no_ci": [(DispatchOrder, "take", _take_without_ci)],
    "tick_before_disp": [(DispatchOrder, "begin", _publish_first)],
    "no_gate": [(Gate, "is_open", lambda self, now_ms: True)],
    "tick_fresh_lost": [(Candidate, "tick", _own_tick)],
    "handover_no_ci": [
        (Leader, "_publish", _publish_seconds_only),
        (Handover, "give", _give_without_ci(Handover.give)),
    ],
    "handover_resume": [(Handover, "may_resume", lambda self: True)],
    # Named by the model beside those.
    "tick_max_no_ci": [
        (Candidate, "tick", _tick_of_any_epoch),
        (DispatchOrder, "take", _take_without_ci),
    ],
    # Rules that the code adds.
    "ack_unverified": [(Follower, "_acknowledged", lambda self: self._log.durable_end)],
    "commit_unverified": [(Follower, "_note_commit", _commit_unverified)],
    "no_prev_check": [(Follower, "_fits", _no_fit)],
    "promise_before_sync": [(Voter, "_holds_durably", lambda self: True)],
    "equal_counter": [(Voter, "may_promise", lambda self, epoch: epoch > self.promised)],
    "no_joint": [(Configuration, "reached", _reached_by_voters(Configuration.reached))],
    "readmit_at_once": [(Leader, "readmit", _readmit_at_once)],
}

DIRECTED: dict[str, list[Patch]] = {
    "learner_at_once": [(Leader, "may_readmit", _learner_at_once(Leader.may_readmit))],
    "reconnect_unnoticed": [(Leader, "reconnect", _reconnect_unnoticed)],
    "voter_as_learner": [(Leader, "may_readmit", partialmethod(_may_readmit, fresh=True))],
    "change_anyway": [(Candidate, "begins_with", _change_anyway)],
    "adopted_unasked": [(Candidate, "adopted", _adopted_by_whom_it_asked(Candidate.adopted))],
}
"""Too rare for random schedules: `test_changes.py` has one case for each."""

SURVIVES: dict[str, list[Patch]] = {
    "tick_max_t": [(Candidate, "tick", _tick_of_any_epoch)],
}
"""Not a fault: the position that a tick covers makes the tick of any epoch safe to start from."""


@contextmanager
def mutated(patches: list[Patch]) -> Iterator[None]:
    """The real classes with these methods replaced."""
    with ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(patch.object(target, name, value))
        yield
