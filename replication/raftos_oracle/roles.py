"""Follower, candidate and leader: raftos' own, with what they get wrong put right.

A message reaches a role only when it is of the node's own term (see `state.py`), so none of these
changes the term, and none is asked in a role that the term has ended.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftos import state as raftos_state

from delaylog.replication.raftos_oracle.messages import Message
from delaylog.replication.raftos_oracle.timers import SteadyTimer

RESPONSES_PENDING_MAX: Final = 64
"""Heartbeats whose answers are still counted: beyond it the oldest are forgotten."""


class Follower(raftos_state.Follower):
    """Follows whom it hears; stands when it hears nobody and a majority agrees."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.election_timer = SteadyTimer(state.election_interval_s, self.start_election)

    def init_storage(self) -> None:
        """raftos forgets here whom it voted for; a vote stays as long as its term."""

    def give_time(self) -> None:
        """Another one is about to stand and has this node's word: do not split the votes."""
        self.election_timer.reset()

    def start_election(self) -> None:
        """Nobody is heard: ask first, so that a node that was cut off disturbs nobody."""
        self.state.begin_pre_vote()

    def on_receive_append_entries(self, data: Message) -> None:
        self.state.note_heartbeat()
        super().on_receive_append_entries(data)

    def on_receive_request_vote(self, data: Message) -> None:
        """One vote a term, said again to who asks again; raftos says nothing the second time."""
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
    """Asks for votes in a term of its own, which `to_candidate` has begun."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.election_timer = SteadyTimer(state.election_interval_s, state.stand_again)
        self._voters = {self.id}

    def start(self) -> None:
        self.vote_count = 1
        self.request_vote()
        self.election_timer.start()

    def on_receive_request_vote(self, data: Message) -> None:
        """Its vote of this term is its own."""
        self.state.send_vote(data, granted=False)

    def on_receive_request_vote_response(self, data: Message) -> None:
        """Each voter counts once, however often its answer comes."""
        voter = self.state.get_sender_id(data["sender"])
        if data["vote_granted"] and voter not in self._voters:
            self._voters.add(voter)
            super().on_receive_request_vote_response(data)


class Leader(raftos_state.Leader):
    """Sends heartbeats, which carry the tick, and leads while a majority answers them."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        timing = state.timing
        self.heartbeat_timer = SteadyTimer(lambda: timing.heartbeat_ms / 1000, self.heartbeat)
        self.step_down_timer = SteadyTimer(lambda: timing.step_down_ms / 1000, state.to_follower)
        self._sent_s: dict[int, float] = {}
        """When each heartbeat was sent that is not answered by a majority yet."""
        self._confirmed_s: float = self.loop.time()
        self._transfer_to: str | None = None
        self._transfer_until_s = 0.0

    @property
    def confirmed(self) -> bool:
        """Whether a majority has answered a heartbeat that was sent lately.

        The step-down timer says much the same, but not before the loop has run, and it takes
        answers that lay in the socket: a process that was stopped must not lead on those.
        """
        timing = self.state.timing
        return bool(self.loop.time() - self._confirmed_s < timing.step_down_ms / 1000)

    def transfer(self, target_id: str) -> None:
        """Let another one be elected, until the deadline; said repeatedly, as it may be lost."""
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
        """raftos sends from a task, by when this node may lead no more, yet names the term that
        holds then. Sent at once, it is always of the term that this node leads.
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
        """Its vote of this term is its own."""
        self.state.send_vote(data, granted=False)

    def on_receive_append_entries_response(self, data: Message) -> None:
        """Count an answer; only one that counts for nothing any more is passed over."""
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
