"""A stream: entries by id, and the groups that read them.

Entries are in nodes of up to 100. A binary search over the nodes' first ids and then within a node
finds an entry. Appending changes the last node; trimming removes the first nodes, which moves one
pointer for each remaining node. A stream without entries is kept, because its ids must not repeat.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from delaylog.broker.keyspace.streams.groups import UNKNOWN, Group
from delaylog.broker.keyspace.streams.ids import ID_MAX
from delaylog.broker.keyspace.streams.nodes import Fields, StreamNode


@dataclass(slots=True, eq=False)
class StreamValue:
    """Entries of fields, ordered by (ms, sequence)."""

    nodes: list[StreamNode] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    """The first ids of the nodes."""
    length: int = 0
    last_id: int = 0
    """The largest id so far, also of deleted entries."""
    first_id: int = 0
    """The id of the first entry; 0 = there is none."""
    max_deleted_id: int = 0
    entries_added: int = 0
    """The number of entries ever added."""
    groups: dict[bytes, Group] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.length

    # ------------------------------------------------------------------ entries

    def append(self, number: int, fields: Fields) -> None:
        """Append an entry; its id must be larger than all earlier ones."""
        assert number > self.last_id
        nodes = self.nodes
        if not nodes or not nodes[-1].has_room(sum(map(len, fields))):
            nodes.append(StreamNode(number, fields))
            self._firsts.append(number)
        nodes[-1].append(number, fields)
        self.entries_added += 1
        self.last_id = number
        self.length += 1
        if self.length == 1:
            self.first_id = number

    def _node_at(self, number: int) -> int:
        """Return the index of the node whose range includes an id; -1 = it is before all nodes."""
        return bisect_right(self._firsts, number) - 1

    def find(self, number: int) -> Fields | None:
        """Return the fields of an entry, or None."""
        at = self._node_at(number)
        if at < 0:
            return None
        node = self.nodes[at]
        index = bisect_left(node.ids, number)
        if index < len(node.ids) and node.ids[index] == number:
            return node.items[index]
        return None

    def entries(self, start: int = 0, end: int = ID_MAX) -> Iterator[tuple[int, Fields]]:
        """Iterate over the entries of an id range; the stream must not change meanwhile."""
        nodes = self.nodes
        for at in range(max(self._node_at(start), 0), len(nodes)):
            node = nodes[at]
            ids = node.ids
            for index in range(bisect_left(ids, start) if node.first < start else 0, len(ids)):
                if ids[index] > end:
                    return
                yield ids[index], node.items[index]

    def entries_back(self, start: int = 0, end: int = ID_MAX) -> Iterator[tuple[int, Fields]]:
        """Iterate in descending order."""
        nodes = self.nodes
        for at in range(self._node_at(end), -1, -1):
            node = nodes[at]
            ids = node.ids
            for index in range(bisect_right(ids, end) - 1, -1, -1):
                if ids[index] < start:
                    return
                yield ids[index], node.items[index]

    def last_present(self) -> int:
        """Return the id of the last entry; 0 = there is none."""
        return next(self.entries_back(), (0,))[0]

    def delete(self, number: int) -> bool:
        """Delete an entry; returns whether it existed. Call `note_first` afterwards."""
        at = self._node_at(number)
        if at < 0:
            return False
        node = self.nodes[at]
        index = bisect_left(node.ids, number)
        if index == len(node.ids) or node.ids[index] != number:
            return False
        del node.ids[index], node.items[index]
        if not node.ids:
            del self.nodes[at], self._firsts[at]
        self.length -= 1
        self.max_deleted_id = max(self.max_deleted_id, number)
        return True

    def note_first(self) -> None:
        """Update the first id after deletions."""
        self.first_id = next(self.entries(), (0,))[0]

    def pop(self) -> int:
        """Free the last node of a removed stream; returns the number of its entries."""
        count = len(self.nodes.pop().ids)
        self.length -= count
        return count

    # ------------------------------------------------------------------ trimming

    def trim_to_length(self, length: int, limit: int = 0, *, whole_nodes: bool = False) -> int:
        """Remove the first entries until `length` are left; returns their number.

        At most `limit` entries (0 = any number) are removed. With `whole_nodes`, a node is removed
        as a whole or not at all.
        """
        excess = self.length - length
        gone = nodes_gone = 0
        for node in self.nodes:
            if gone >= excess or (limit and gone + len(node.ids) > limit):
                break
            if gone + len(node.ids) > excess:
                if not whole_nodes:
                    part = excess - gone
                    del node.ids[:part], node.items[:part]
                    gone += part
                break
            gone += len(node.ids)
            nodes_gone += 1
        return self._trimmed(gone, nodes_gone)

    def trim_to_id(self, number: int, limit: int = 0, *, whole_nodes: bool = False) -> int:
        """Remove the entries before an id; see `trim_to_length`."""
        gone = nodes_gone = 0
        for node in self.nodes:
            if limit and gone + len(node.ids) > limit:
                break
            if node.last >= number:
                if not whole_nodes:
                    part = bisect_left(node.ids, number)
                    del node.ids[:part], node.items[:part]
                    gone += part
                break
            gone += len(node.ids)
            nodes_gone += 1
        return self._trimmed(gone, nodes_gone)

    def _trimmed(self, gone: int, nodes_gone: int) -> int:
        if nodes_gone:
            del self.nodes[:nodes_gone], self._firsts[:nodes_gone]
        if gone:
            self.length -= gone
            self.note_first()
        return gone

    # ------------------------------------------------------------------ how far groups are

    def has_gaps_from(self, number: int) -> bool:
        """Whether entries may have been deleted between an id and the end."""
        if not self.length or not self.max_deleted_id or self.first_id > self.max_deleted_id:
            return False
        return number <= self.max_deleted_id

    def count_until(self, number: int) -> int:
        """Return the number of entries added up to an id, or UNKNOWN."""
        if not self.entries_added:
            return 0
        if number == self.last_id or (not self.length and number < self.last_id):
            return self.entries_added
        if number > self.last_id:
            return UNKNOWN
        if not self.max_deleted_id or self.max_deleted_id < self.first_id:
            if number < self.first_id:
                return self.entries_added - self.length
            if number == self.first_id:
                return self.entries_added - self.length + 1
        return UNKNOWN

    def lag(self, group: Group) -> int | None:
        """Return the lag of a group; None = unknown."""
        if not self.entries_added:
            return 0
        if group.entries_read != UNKNOWN and not self.has_gaps_from(group.last_id):
            return self.entries_added - group.entries_read
        read = self.count_until(group.last_id)
        return None if read == UNKNOWN else self.entries_added - read

    def advance(self, group: Group, number: int) -> None:
        """Advance a group to this entry, which is after its last one."""
        if group.entries_read != UNKNOWN and not self.has_gaps_from(number):
            group.entries_read += 1
        elif self.entries_added:
            group.entries_read = self.count_until(number)
        group.last_id = number

    # ------------------------------------------------------------------ whole

    def plain(self) -> list[Any]:
        """Return the stream as numbers, bytes and lists, for snapshots."""
        return [
            [
                number.to_bytes(16, "big")
                for number in (self.first_id, self.last_id, self.max_deleted_id)
            ],
            self.entries_added,
            [node.plain() for node in self.nodes],
            [[name, group.plain()] for name, group in self.groups.items()],
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> StreamValue:
        """Rebuild a stream from `plain`."""
        ids, entries_added, nodes, groups = plain
        value = cls()
        value.first_id, value.last_id, value.max_deleted_id = (
            int.from_bytes(number, "big") for number in ids
        )
        value.entries_added = entries_added
        value.nodes = [StreamNode.from_plain(node) for node in nodes]
        value._firsts = [node.first for node in value.nodes]
        value.length = sum(len(node.ids) for node in value.nodes)
        value.groups = {name: Group.from_plain(group) for name, group in groups}
        return value
