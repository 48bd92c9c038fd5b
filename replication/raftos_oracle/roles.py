"""Follower, candidate and leader: raftos' roles with their defects corrected.

A message reaches a role only if it is of the node's own term (see `state.py`), so no role changes
the term, and no role of an older term is called.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftos import state as raftos_state

from delaylog.replication.raftos_oracle.messages import Message
from delaylog.replication.raftos_oracle.timers import SteadyTimer

RESPONSES_PENDING_MAX: Final = 64
"""Most heartbeats whose answers are counted; the oldest are forgotten."""


class Follower(raftos_state.Follower):
    """Follows the leader that it hears; if it hears none and a majority agrees, is a candidate."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.election_timer = SteadyTimer(state.election_interval_s, self.start_election)

    def init_storage(self) -> None:
        """raftos resets the vote here; a vote must stay as long as its term."""

    def give_time(self) -> None:
        """This node supports another candidate: wait, in order not to split the votes."""
        self.election_timer.reset()

    def start_election(self) -> None:
        """No leader is heard: begin a pre-vote, so that a partitioned node disturbs no term."""
        self.state.begin_pre_vote()

    def on_receive_append_entries(self, data: Message) -> None:
        self.state.note_heartbeat()
        super().on_receive_append_entries(data)

    def on_receive_request_vote(self, data: Message) -> None:
        """Give one vote a term, and repeat it on request; raftos ignores a second request."""
        candidate = data["candidate_id"]
        voted_for = self.storage.voted_for
        granted = voted_for == candidate
        behind = not data["by_transfer"] and self.state.is_behind(data["standing"])
        if voted_for is None and not behind:
            self.storage.update({"voted_for": candidate})
            self.election_timer.reset()
            granted = True
        self.state.send_vote(data, granted=granted)


class Candidate(raftos_state.Candidate):
    """Requests votes in its own term, which `to_candidate` has begun."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.election_timer = SteadyTimer(state.election_interval_s, state.stand_again)
        self._voters = {self.id}

    def start(self) -> None:
        self.vote_count = 1
        self.request_vote()
        self.election_timer.start()

    def on_receive_request_vote(self, data: Message) -> None:
        """Refuse: it has voted for itself in this term."""
        self.state.send_vote(data, granted=False)

    def on_receive_request_vote_response(self, data: Message) -> None:
        """Count each voter once, however often its answer comes."""
        voter = self.state.get_sender_id(data["sender"])
        if data["vote_granted"] and voter not in self._voters:
            self._voters.add(voter)
            super().on_receive_request_vote_response(data)


class Leader(raftos_state.Leader):
    """Sends heartbeats with the tick, and leads while a majority answers them."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        timing = state.timing
        self.heartbeat_timer = SteadyTimer(lambda: timing.heartbeat_ms / 1000, self.heartbeat)
        self.step_down_timer = SteadyTimer(state.step_down_s, state.to_follower)
        self._sent_s: dict[int, float] = {}
        """The times of the heartbeats that a majority has not answered yet."""
        self._confirmed_s: float = self.loop.time()
        self._transfer_to: str | None = None
        self._transfer_until_s = 0.0

    @property
    def confirmed(self) -> bool:
        """Whether a majority has answered a recent heartbeat.

        The step-down timer checks nearly the same, but only once the loop has run, and it counts
        answers that waited in the socket: a process that was stopped must not lead by those.
        """
        return bool(self.loop.time() - self._confirmed_s < self.state.step_down_s())

    def transfer(self, target_id: str) -> None:
        """Have another node elected, until the deadline; sent repeatedly, as it may be lost."""
        self._transfer_to = target_id
        deadline_ms = self.state.timing.transfer_deadline_ms
        self._transfer_until_s = self.loop.time() + deadline_ms / 1000
        self._send_timeout_now()

    def heartbeat(self) -> None:
        super().heartbeat()
        self._sent_s[self.request_id] = self.loop.time()
        for request_id in sorted(self.response_map)[:-RESPONSES_PENDING_MAX]:
            del self.response_map[request_id], self._sent_s[request_id]
        self._send_timeout_now()

    def append_entries(self, destination: str | None = None) -> asyncio.Future[None]:
        """Send heartbeats at once, so that they always have the term that this node leads.

        raftos sends from a task with the term at that time, when this node may no longer lead.
        """
        tick = self.state.settings.tick()
        for follower in [destination] if destination else self.state.cluster:
            message = {
                "type": "append_entries",
                "term": self.storage.term,
                "leader_id": self.id,
                "commit_index": 0,
                "request_id": self.request_id,
                "entries": [],
                "prev_log_index": 0,
                "prev_log_term": 0,
                "tick": None if tick is None else list(tick),
            }
            sent: asyncio.Future[None] = self.state.send(message, follower)
        return sent

    def on_receive_request_vote(self, data: Message) -> None:
        """Refuse: it has voted for itself in this term."""
        self.state.send_vote(data, granted=False)

    def on_receive_append_entries_response(self, data: Message) -> None:
        """Count an answer, unless its heartbeat is forgotten."""
        if data["request_id"] not in self.response_map:
            return
        super().on_receive_append_entries_response(data)
        if data["request_id"] not in self.response_map:
            self._confirmed_s = max(self._confirmed_s, self._sent_s.pop(data["request_id"]))

    def _send_timeout_now(self) -> None:
        if self._transfer_to is None:
            return
        if self.loop.time() >= self._transfer_until_s:
            self._transfer_to = None
            return
        self.state.send({"type": "timeout_now", "term": self.storage.term}, self._transfer_to)
