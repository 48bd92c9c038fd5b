"""The state of one node in the election: its role, its term, the leader that it hears.

raftos changes the term inside its roles, resets the vote there, and answers in a role that has just
ended. Here `request_handler` handles every message first: it stores a newer term together with an
empty vote in one durable write, refuses an older term, and then calls the present role. Pre-votes
and transfers, which raftos does not have, are here too.

The roles follower, candidate and leader are raftos' with their defects corrected. A message reaches
a role only if it is of the node's own term, so no role changes the term, and no role of an older
term is called. Timers survive errors and never run twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from raftos import state as raftos_state
from raftos.storage import Log
from raftos.timer import Timer

from delaylog.replication.epochs import EpochTick
from delaylog.replication.raftos_oracle.datagrams import Message, Refusal, Refused
from delaylog.replication.raftos_oracle.settings import Address, OracleSettings
from delaylog.replication.raftos_oracle.term_file import TermFile

if TYPE_CHECKING:
    from delaylog.replication.raftos_oracle.oracle import ElectionNode

# --------------------------------------------------------------------------------------- timers


class SteadyTimer(Timer):
    """A timer that sets itself again before its callback, whose changes to the timer stay.

    raftos' timer does so after the callback: an error ends it, and a timer that its callback has
    reset runs twice from then on.
    """

    def __init__(self, interval_s: Callable[[], float], callback: Callable[[], None]) -> None:
        super().__init__(interval_s, callback)
        self.handler = None

    def _run(self) -> None:
        self.start()
        self.callback()

    def stop(self) -> None:
        self.is_active = False
        if self.handler is not None:
            self.handler.cancel()
            self.handler = None


# ---------------------------------------------------------------------------------------- roles

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


# ------------------------------------------------------------------------------------ the state

# raftos' replicated log, which is always empty here.
#
# raftos' log loses entries, hangs and never shrinks (see docs/REPLICATION.md), but only with
# entries. Elections only read its length and newest term. Nothing can be added, and no file is
# opened.


class EmptyLog(Log):
    """A log of length zero."""

    def __init__(self) -> None:
        self.cache: list[object] = []
        self.commit_index = 0
        self.last_applied = 0
        self.next_index: dict[str, int] = {}
        self.match_index: dict[str, int] = {}

    def know_members(self, names: Iterable[str]) -> None:
        """Fill the tables that raftos reads for each follower."""
        names = [*names]
        self.next_index = dict.fromkeys(names, 1)
        self.match_index = dict.fromkeys(names, 0)

    def write(self, term: object, command: object) -> NoReturn:
        raise AssertionError("nothing is replicated by raftos")

    def erase_from(self, index: int) -> None:
        """There is nothing to erase."""


NEVER_S = float("-inf")


class ElectionState(raftos_state.State):
    """raftos' state of one node; several nodes may live in one process."""

    def __init__(self, server: ElectionNode, storage: TermFile, settings: OracleSettings) -> None:
        """Does not call raftos' own, which opens files and stores the loop in the class."""
        self.server: ElectionNode = server
        self.id = self._get_id(server.host, server.port)
        self.loop = server.loop
        self.storage = storage
        self.settings = settings
        self.timing = settings.timing
        self.log = EmptyLog()
        self.state_machine = None
        self.leader: str | None = None
        """The leader of its term that this node hears; raftos stores it in the class."""
        self._heard_s = NEVER_S
        self._out_until_s = NEVER_S
        self._by_transfer = False
        self._round = 0
        self._agreed: set[str] | None = None
        self.state = Follower(self)
        self._notified: tuple[type, str | None] = (Follower, None)

    # ------------------------------------------------------------------ state

    @property
    def leads(self) -> bool:
        """Whether this node was elected and a majority still answers it."""
        return isinstance(self.state, Leader) and self.state.confirmed

    @property
    def hears_leader(self) -> bool:
        """Whether a leader was heard so recently that no other node should be a candidate."""
        return self.loop.time() - self._heard_s < self.step_down_s()

    @property
    def is_out(self) -> bool:
        """Whether it has resigned and must not be a candidate yet."""
        return self.loop.time() < self._out_until_s

    def get_leader(self) -> str | None:
        """The probable leader; None once it was silent for longer than an election takes."""
        if isinstance(self.state, Leader):
            return self.id if self.state.confirmed else None
        silent_s = self.loop.time() - self._heard_s
        longest_s = self.timing.election_max_ms * self.settings.stretch() / 1000
        return self.leader if silent_s < longest_s else None

    def is_majority(self, count: int) -> bool:
        """Whether this is a majority of all members; `cluster_count` does not include this node."""
        return count > (int(self.server.cluster_count) + 1) // 2

    def election_interval_s(self) -> float:
        """A random election timeout."""
        timing = self.timing
        span_ms = self.settings.random.uniform(timing.election_min_ms, timing.election_max_ms)
        return span_ms * self.settings.stretch() / 1000

    def step_down_s(self) -> float:
        """How long a leader counts as heard, or as answered, without another message."""
        return self.timing.step_down_ms * self.settings.stretch() / 1000

    def note_heartbeat(self) -> None:
        """The leader of this term was heard."""
        self._heard_s = self.loop.time()

    def is_behind(self, log_state: list[int]) -> bool:
        """Whether a candidate's log is less complete than this node's, which refuses it then.

        A node that may not be a candidate, for now or as a learner, has no such preference:
        otherwise the most complete log could keep every other node from leading.
        """
        mine = None if self.is_out else self.settings.log_state()
        return mine is not None and (log_state[0], log_state[1]) < mine

    # ------------------------------------------------------------------ roles

    def to_follower(self) -> None:
        """Become a follower, without raftos' global callbacks, which are left out below too."""
        self._change_state(Follower)
        self.set_leader(None)

    def to_candidate(self, *, by_transfer: bool = False) -> None:
        """Begin a term, which is durable before any message has it."""
        self.storage.update({"term": self.storage.term + 1, "voted_for": self.id})
        self._by_transfer = by_transfer
        self._change_state(Candidate)
        self.set_leader(None)

    def to_leader(self) -> None:
        self._change_state(Leader)
        self.set_leader(self.id)

    def set_leader(self, leader: str | None) -> None:
        """Set the leader of this node, not of the class, and notify the host of a change."""
        self.leader = leader
        present = (type(self.state), leader)
        if present != self._notified:
            self._notified = present
            self.server.note_change()

    def resign(self, out_s: float) -> None:
        """Step down, and do not be a candidate for a while."""
        self._out_until_s = max(self._out_until_s, self.loop.time() + out_s)
        if not isinstance(self.state, Follower):
            self.to_follower()

    def transfer(self, target_id: str) -> None:
        """Have another node elected, if this node is the elected leader."""
        if isinstance(self.state, Leader):
            self.state.transfer(target_id)

    # ------------------------------------------------------------------ messages

    def send(self, data: Message, destination: str | Address) -> asyncio.Future[None]:
        """Send at once. The result is a future, since raftos makes a task of anything else."""
        return self.server.send(data, destination)

    def send_vote(self, request: Message, *, granted: bool) -> None:
        """Answer a request for a vote."""
        answer = {"term": self.storage.term, "vote_granted": granted}
        self.send({"type": "request_vote_response", **answer}, request["sender"])

    def broadcast(self, data: Message) -> None:
        """Send to all; requests for votes state how complete this node's log is."""
        if data["type"] == "request_vote":
            # The node may have become a learner since a transfer or a pre-vote: no preference.
            log_state = self.settings.log_state() or (0, 0)
            data = {**data, "standing": list(log_state), "by_transfer": self._by_transfer}
        self.server.broadcast(data)

    def request_handler(self, data: Message) -> None:
        """Handle a checked message. Raises Refused."""
        match data["type"]:
            case "pre_vote":
                self._on_pre_vote(data)
            case "pre_vote_response":
                self._on_pre_vote_response(data)
            case "timeout_now":
                self._on_timeout_now(data)
            case _:
                self._on_raft(data)

    def _on_raft(self, data: Message) -> None:
        if data["term"] > self.storage.term:
            self.storage.update({"term": data["term"], "voted_for": None})
            self.to_follower()
        if data["term"] < self.storage.term:
            self._refuse_old(data)
        heartbeat = data["type"] == "append_entries"
        if heartbeat and isinstance(self.state, Candidate):
            self.to_follower()
        super().request_handler(data)
        if heartbeat and isinstance(self.state, Follower) and data["tick"] is not None:
            # In the next turn of the loop, so that an error of the host has no effect here.
            self.loop.call_soon(self.settings.accept_tick, EpochTick(*data["tick"]))

    def _refuse_old(self, data: Message) -> None:
        """Tell the sender the newer term, and refuse the message."""
        answer: Message = {"term": self.storage.term}
        if data["type"] == "request_vote":
            self.send_vote(data, granted=False)
        elif data["type"] == "append_entries":
            answer |= {"success": False, "last_log_index": 0, "request_id": data["request_id"]}
            self.send({"type": "append_entries_response", **answer}, data["sender"])
        raise Refused(Refusal.OLD_TERM)

    # ------------------------------------------------------------------ pre-votes and transfers

    def begin_pre_vote(self) -> None:
        """Ask whether a majority would vote for this node; the term does not change."""
        log_state = None if self.is_out else self.settings.log_state()
        if log_state is None or self.settings.hears() is not None:
            return
        self._round += 1
        self._agreed = {self.id}
        question = {"term": self.storage.term, "round": self._round, "standing": list(log_state)}
        self.broadcast({"type": "pre_vote", **question})

    def stand_again(self) -> None:
        """The votes were split: begin another pre-vote at once.

        raftos would wait for a leader first, and a failover with one split vote would take more
        than a second.
        """
        self.to_follower()
        self.begin_pre_vote()

    def _on_pre_vote(self, data: Message) -> None:
        granted = (
            data["term"] >= self.storage.term
            and not isinstance(self.state, Leader)
            and not self.hears_leader
            and self.settings.hears() in (None, self._index_of(data["sender"]))
            and not self.is_behind(data["standing"])
        )
        if granted and isinstance(self.state, Follower):
            self.state.give_time()
        answer = {"term": self.storage.term, "round": data["round"], "vote_granted": granted}
        self.send({"type": "pre_vote_response", **answer}, data["sender"])

    def _index_of(self, sender: Address) -> int | None:
        return self.server.index_of(self.get_sender_id(sender))

    def _on_pre_vote_response(self, data: Message) -> None:
        if not isinstance(self.state, Follower):
            return  # Such an answer must not end the term of a leader or candidate.
        if data["term"] > self.storage.term:
            self.storage.update({"term": data["term"], "voted_for": None})
            self._agreed = None
            return
        if self._agreed is None or data["round"] != self._round or not data["vote_granted"]:
            return
        self._agreed.add(self.get_sender_id(data["sender"]))
        if self.is_majority(len(self._agreed)) and not self.hears_leader and not self.is_out:
            self._agreed = None
            self.to_candidate()

    def _on_timeout_now(self, data: Message) -> None:
        """The leader hands over to this node."""
        if data["term"] != self.storage.term:
            raise Refused(Refusal.OLD_TERM)
        by_leader = self.get_sender_id(data["sender"]) == self.leader
        may_stand = not self.is_out and self.settings.log_state() is not None
        if isinstance(self.state, Follower) and by_leader and may_stand:
            self.to_candidate(by_transfer=True)
