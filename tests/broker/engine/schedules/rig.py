"""A host with schedules: calls by name, and what has fired."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack

from delaylog.broker.engine.schedules import commands
from delaylog.broker.engine.schedules.runner import ScheduleRunner
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.rules.schedules.zones import Zones
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.log_reader import frames_in
from tests.broker.engine.host import Host


@dataclass
class ScheduleHost(Host):
    """A `Host` whose topic has schedules."""

    fired: dict[str, int] = field(default_factory=dict)
    """When each message was received first, by its id."""

    def put(self, name: str, body: bytes = b"", **members: Any) -> Schedule:
        state = self.engine.state
        commands.put_schedule(state, self.topic, name, members, body, self.now_ms)
        self.turn()
        return self.one(name)

    def patch(self, name: str, body: bytes | None = None, **changes: Any) -> Schedule:
        one = self.one(name)
        state = self.engine.state
        commands.patch_schedule(state, self.topic, one, changes, self.now_ms, body=body)
        self.turn()
        return self.one(name)

    def pause_one(self, name: str, note: str = "") -> None:
        commands.pause_schedule(self.engine.state, self.one(name), note, self.now_ms)
        self.turn()

    def resume_one(self, name: str) -> None:
        commands.resume_schedule(self.engine.state, self.one(name), self.now_ms)
        self.turn()

    def drop_one(self, name: str) -> None:
        commands.drop_schedule(self.engine.state, self.one(name), self.now_ms)
        self.turn()

    def run_now(self, name: str) -> str:
        made = commands.run_now(self.engine.state, self.one(name), self.now_ms)
        self.turn()
        return made

    def list_names(self, **how: Any) -> list[str]:
        found = commands.list_schedules(self.engine.state, self.topic, **how)
        return [one.name for one in found]

    def preview(self, name: str, count: int) -> list[commands.Coming]:
        wanted = commands.Instants(count)
        return list(commands.previewed(self.one(name), wanted, self.now_ms))

    def one(self, name: str) -> Schedule:
        return commands.the_schedule(self.engine.state, self.topic, name)

    def use_zones(self, zones: Zones) -> None:
        """As a start of a program with another release of tzdata."""
        self.engine.schedules = ScheduleRunner(self.engine.state, zones)
        self.engine.schedules.start(self.now_ms)
        self.turn()

    def due_of(self, id: str) -> int:
        """The due time of the message of an instant that has been received."""
        (message,) = self._columns([id]).rows
        return int(message["deliver_at"])

    def take(self) -> list[str]:
        """Receive and ack all there is; returns the ids."""
        out: list[str] = []
        while messages := self.receive():
            for message in messages:
                assert message.id not in self.fired, f"{message.id} fires twice"
                self.fired[message.id] = self.now_ms
                out.append(message.id)
            self.ack(messages)
        return out


def headers_of(host: Host, id: str) -> dict[str, str]:
    """The headers of a message."""
    found = host._columns([id])
    assert found.known[0]
    record = host.engine.state.hours.records(found.refs, found.rows)
    row = found.rows[0]
    start = int(row["id_size"]) + int(row["key_size"]) + int(row["tags_size"])
    unpacked: dict[str, str] = msgpack.unpackb(record[start : start + int(row["headers_size"])])
    return unpacked


def kinds_since(host: Host, position: int) -> list[FrameKind]:
    """The kinds of the frames of the log behind a position."""
    host.sync()
    log = host.engine.state.log
    data = log.read(position, log.end_position - position)
    return [FrameKind(frame.header.kind) for frame in frames_in(data, position)]
