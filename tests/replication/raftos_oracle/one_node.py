"""One node without a network: what it would send is kept, and messages are handed to it.

No timer runs unless a role is entered, and then the test is over before it fires.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from delaylog.replication.raftos_oracle.datagrams import Refusal, Refused
from delaylog.replication.raftos_oracle.settings import Address, Roster
from delaylog.replication.raftos_oracle.state import Candidate, ElectionState
from delaylog.replication.raftos_oracle.term_file import TermFile
from tests.replication.raftos_oracle.cluster import settings
from tests.storage.fake_disk import FakeDisk


class OneNode:
    """The server of node 0 of a cluster."""

    def __init__(self, count: int = 3, disk: FakeDisk | None = None, **own: Any) -> None:
        members = {node: (f"10.0.0.{node + 1}", 7_001) for node in range(count | 1)}
        self.roster = Roster(0, members)
        self.host, self.port = members[0]
        self.cluster: set[Address] = {members[node] for node in range(1, count)}
        self.cluster_count = count - 1
        self.loop = asyncio.get_running_loop()
        self.sent: list[tuple[Any, dict[str, Any]]] = []
        self.changes = 0
        if disk is None:
            disk = FakeDisk()
            disk.mkdir("data")
        self.disk = disk
        self.storage = TermFile(disk, "data/vote", self.roster)
        self.state = ElectionState(self, self.storage, settings(**own))  # type: ignore[arg-type]

    def send(self, data: dict[str, Any], destination: Any) -> asyncio.Future[None]:
        self.sent.append((destination, data))
        sent = self.loop.create_future()
        sent.set_result(None)
        return sent

    def index_of(self, name: str) -> int | None:
        return self.roster.index_of(name)

    def broadcast(self, data: dict[str, Any]) -> None:
        for destination in self.cluster:
            self.send(data, destination)

    def note_change(self) -> None:
        self.changes += 1

    # ------------------------------------------------------------------ for tests

    @property
    def role(self) -> str:
        return type(self.state.state).__name__

    def id_of(self, node: int) -> str:
        return self.roster.id_of(node)

    def take(self, source: int, kind: str, term: int, **more: Any) -> list[dict[str, Any]]:
        """A message comes; what is sent because of it."""
        del self.sent[:]
        data = {"type": kind, "term": term, "sender": self.roster.addresses[source], **more}
        self.state.request_handler(data)
        return [message for _, message in self.sent]

    def refused(self, source: int, kind: str, term: int, **more: Any) -> list[dict[str, Any]]:
        """The same of a message that is of an old term."""
        with pytest.raises(Refused) as caught:
            self.take(source, kind, term, **more)
        assert caught.value.reason == Refusal.OLD_TERM
        return [message for _, message in self.sent]

    def asks(
        self, source: int, term: int, standing: tuple[int, int] = (0, 0), *, transfer: bool = False
    ) -> list[dict[str, Any]]:
        """A candidate asks for the vote."""
        more = {"candidate_id": self.id_of(source), "last_log_index": 0, "last_log_term": 0}
        more |= {"standing": list(standing), "by_transfer": transfer}
        return self.take(source, "request_vote", term, **more)

    def heartbeat(self, source: int, term: int, tick: list[int] | None = None) -> dict[str, Any]:
        """The members of a leader's heartbeat."""
        return {
            "leader_id": self.id_of(source),
            "commit_index": 0,
            "request_id": 1,
            "entries": [],
            "prev_log_index": 0,
            "prev_log_term": 0,
            "tick": tick,
        }

    def hears(self, source: int, term: int, tick: list[int] | None = None) -> list[dict[str, Any]]:
        """A heartbeat comes."""
        return self.take(source, "append_entries", term, **self.heartbeat(source, term, tick))

    def stand(self) -> None:
        """Become a candidate, as after a majority has agreed."""
        self.state.to_candidate()
        assert isinstance(self.state.state, Candidate)

    def votes(self, source: int, term: int, *, granted: bool = True) -> None:
        """An answer to this node's request."""
        self.take(source, "request_vote_response", term, vote_granted=granted)
