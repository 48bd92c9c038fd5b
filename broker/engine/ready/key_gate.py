"""Key gate: messages of one key are handed out one at a time, in order; other keys go on.

A key is held from the lease of one of its messages until that message has ended, its retries
included. What comes up meanwhile is parked under the key (parking.py), so the ready queue never
stands still, and comes out when the key is free. Who holds which key follows from frames and
stands in checkpoints; what is parked are hints, made anew after a restart.

A message that was sent while another one with its id was under lease waits for that one's end in
the same way, under a key of its own: minus the origin it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.deliver.filters import TagFilter
from delaylog.broker.engine.ready.key_table import Claims, Keys, KeyTable, member_mask, repeated
from delaylog.broker.engine.ready.parking import Parking, ParkingLot, UnparkedQueue
from delaylog.storage.columns.questions import Mask, some
from delaylog.storage.files.run_file import RunFile
from delaylog.storage.layout import Int64Array, RowArray

NO_KEYS: Final[dict[str, Any]] = {"keys": b"", "owners": b"", "waits": [], "heirs": []}
"""`snapshot` of a gate of which nothing is held."""


class KeyGate:
    """Keys of one group."""

    __slots__ = (
        "_awaited",
        "_heirs",
        "_looked",
        "_retries",
        "_retry_keys",
        "_waits",
        "_watched",
        "_watched_free",
        "_working",
        "parking",
    )

    def __init__(self, make_run: Callable[[], RunFile]) -> None:
        self.parking = Parking(make_run)
        self._watched: set[int] = set()
        """Held keys that a sleeper may wait for though nothing is parked under them.

        A message that was asked for by name may not be parked, and what was parked when a lot was
        emptied is in the queues again.
        """
        self._watched_free = False
        self._working = KeyTable()
        """Keys of messages under lease."""
        self._retries: dict[int, int] = {}
        """Keys of messages that wait for a retry or are ready for it, and those origins."""
        self._retry_keys: dict[int, int] = {}
        """The same by origin."""
        self._awaited: dict[int, tuple[list[int], set[int]]] = {}
        """By origin of a message whose end others wait for: their origins, and hashes of its id.

        Thousands may end in one call, so what waits for one is not searched for among all.
        """
        self._waits: dict[int, int] = {}
        """Origins of messages that wait for another's end, and under which key."""
        self._looked = 0
        """How far `holders` has come."""
        self._heirs: dict[int, int] = {}
        """By hash of an id: the origin whose end the next message with that id waits for."""

    # ------------------------------------------------------------------ who holds what

    @property
    def holding(self) -> bool:
        """Whether anything is held, or waited for."""
        return bool(len(self._working) or self._retries or self._awaited)

    @property
    def remembers_origins(self) -> bool:
        """Whether the end of a message that is not under lease can matter."""
        return bool(self._retries or self._awaited)

    def hold(self, keys: Keys) -> None:
        """Messages with these keys were handed out."""
        self._working.add(keys)
        if self._retries:
            for key in self._retries.keys() & keys.tolist():
                del self._retry_keys[self._retries.pop(key)]
            self._shrink()

    def retry(self, keys: Keys, origins: Int64Array) -> None:
        """Messages came back from their leases and keep their keys."""
        self._working.remove(keys)
        self._retries.update(zip(keys.tolist(), origins.tolist(), strict=True))
        self._retry_keys.update(zip(origins.tolist(), keys.tolist(), strict=True))

    def wait_for(self, origin: int, predecessor: int, id_hash: int) -> None:
        """Message `origin` is not to be handed out before `predecessor` has ended."""
        self._wait(origin, predecessor)
        self._expect(id_hash, predecessor)

    def _wait(self, origin: int, predecessor: int) -> None:
        self._awaited.setdefault(predecessor, ([], set()))[0].append(origin)
        self._waits[origin] = -predecessor

    def _expect(self, id_hash: int, predecessor: int) -> None:
        self._awaited.setdefault(predecessor, ([], set()))[1].add(id_hash)
        self._heirs[id_hash] = predecessor

    @property
    def expecting(self) -> bool:
        """Whether any message waits for the end of another."""
        return bool(self._heirs)

    def predecessor(self, id_hash: int) -> int | None:
        """Origin of the message under lease that the next one with this id has to wait for."""
        return self._heirs.get(id_hash)

    def release(self, keys: Keys) -> None:
        """Messages with these keys ended under their leases."""
        self._working.remove(keys)
        self._note_free(keys)

    def give_up(self, origins: Iterable[int]) -> None:
        """Messages that kept keys for a retry do so no more, if they are among these."""
        if self._retries:
            keys = [key for origin in origins if (key := self._retry_keys.pop(origin, 0))]
            for key in keys:
                del self._retries[key]
            self._shrink()
            self._note_free(np.array(keys, np.uint64))

    def _note_free(self, keys: Keys) -> None:
        self.parking.note_free(keys)
        if self._watched:
            self._note_watched(keys.tolist())

    def _note_watched(self, keys: list[int]) -> None:
        free = self._watched.intersection(keys)
        self._watched -= free
        if not self._watched:
            self._watched.clear()
        self._watched_free |= bool(free)

    def end(self, origins: Iterable[int]) -> list[tuple[TagFilter | None, list[int]]]:
        """Messages ended: by queue, refs that it brought and that waited for one of them."""
        out: list[tuple[TagFilter | None, list[int]]] = []
        if self._awaited:
            for origin in origins:
                if origin in self._awaited:
                    out += self._inherit(origin)
        return out

    def _inherit(self, predecessor: int) -> list[tuple[TagFilter | None, list[int]]]:
        """The end of a predecessor: whoever waited for it goes on."""
        followers, ids = self._awaited.pop(predecessor)
        self._note_watched([-predecessor])
        for origin in followers:
            if self._waits.get(origin) == -predecessor:
                del self._waits[origin]
        for id_hash in ids:
            if self._heirs.get(id_hash) == predecessor:
                del self._heirs[id_hash]
        self._shrink()
        return self.parking.unpark(-predecessor)

    def _shrink(self) -> None:
        """Tables out of which everything was taken keep their room until they are cleared."""
        for table in (self._retries, self._retry_keys, self._awaited, self._waits, self._heirs):
            if not table:
                table.clear()

    def holders(self, count: int) -> list[int]:
        """Up to `count` origins of messages that others wait for, not under lease; in turn."""
        total = len(self._retry_keys) + len(self._awaited)
        start = self._looked if self._looked < total else 0
        self._looked = start + count
        return list(islice(chain(self._retry_keys, self._awaited), start, start + count))

    def purge(self, kept: Iterable[int]) -> None:
        """Only what is under lease still holds: the messages with these origins."""
        self._retries.clear()
        self._retry_keys.clear()
        left = set(kept)
        if not left:
            self._working.clear()
        # Nothing says again that these came free.
        self._note_watched([key for key in self._watched if key > 0 and self.free(key)])
        for origin in self._awaited.keys() - left:
            self._inherit(origin)

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint; what is under lease stands with the leases."""
        n = len(self._retries)
        waits = [[origin, -key] for origin, key in self._waits.items()]
        heirs = [[id_hash, origin] for id_hash, origin in self._heirs.items()]
        return {
            "keys": np.fromiter(self._retries.keys(), "<u8", n).tobytes(),
            "owners": np.fromiter(self._retries.values(), "<i8", n).tobytes(),
            "waits": waits,
            "heirs": heirs,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Fill a new gate from a checkpoint; `hold` adds what is under lease."""
        self.retry(np.frombuffer(saved["keys"], "<u8"), np.frombuffer(saved["owners"], "<i8"))
        for origin, predecessor in saved["waits"]:
            self._wait(origin, predecessor)
        for id_hash, predecessor in saved["heirs"]:
            self._expect(id_hash, predecessor)

    # ------------------------------------------------------------------ what may go out

    @property
    def parked(self) -> int:
        """Refs that wait for their keys."""
        return len(self.parking.any)

    @property
    def freed(self) -> bool:
        """Whether something that was parked may go out."""
        return self.parking.freed

    def take_watched(self) -> bool:
        """Whether, since the last time, a key came free that is watched for a sleeper."""
        free, self._watched_free = self._watched_free, False
        return free

    def empty_lots(self) -> UnparkedQueue | None:
        """Empty all lots, for queues that start over; see `Parking.empty`."""
        self._watch([self.parking.any, *self.parking.filters.values()])
        return self.parking.empty()

    def drop_lot(self, only: TagFilter) -> None:
        """The queue of a filter goes, and its lot with it."""
        lot = self.parking.filters.get(only)
        if lot is not None:
            self._watch([lot])
            self.parking.drop(only)

    def _watch(self, lots: list[ParkingLot]) -> None:
        """Lots are about to be emptied: who parked there may sleep until a key comes free."""
        lots = [lot for lot in lots if len(lot)]
        if not lots:
            return
        retries = np.fromiter(self._retries, np.uint64, len(self._retries))
        held = np.concatenate([self._working.column(), retries])
        successors = set(self._waits.values())
        for lot in lots:
            # Either may be a million, so the fewer are looked up among the others.
            if len(lot) < len(held):
                keys = np.array([key for key in lot.parked_keys() if key > 0], np.uint64)
                found = keys[self.held(keys)]
            else:
                found = held[lot.held(held)]
            self._watched.update(found.tolist())
            self._watched.update(filter(lot.holds, successors))

    def free(self, key: int) -> bool:
        """Whether no message holds a key."""
        return key not in self._working and key not in self._retries

    def held(self, keys: Keys) -> Mask:
        """Which of the keys a message holds."""
        found = self._working.find(keys)
        return found | self._retrying(keys) if self._retries else found

    def _retrying(self, keys: Keys) -> Mask:
        """Which of the keys wait for a retry."""
        return member_mask(keys.tolist(), lambda listed: self._retries.keys() & listed)

    def admit(
        self,
        refs: Int64Array,
        rows: RowArray,
        count_max: int,
        claimed: Claims,
        lot: ParkingLot,
    ) -> tuple[Int64Array, int]:
        """(places of refs that may go out now, how many refs were looked at).

        At most `count_max` are let through; what has to wait is parked in the lot of the queue
        that brought it. `claimed` are the keys that this call hands out already.
        """
        keys, origins = rows["key_hash"].astype(np.uint64), rows["origin"]
        waiting = self._working.find(keys) | claimed.find(keys)
        # Behind what is parked, when the key is free: that came first.
        behind = lot.held(keys)
        if self._retries:
            retrying = self._retrying(keys)
            if some(retrying):
                waiting |= retrying & ~self._owners(keys, origins, retrying)
                behind &= ~retrying
        waiting |= behind
        follows = self._followers(origins) if self._waits else {}
        waiting[list(follows)] = True
        good = np.flatnonzero(~waiting)
        # Of several with one key the first goes.
        good = good[~repeated(keys[good])]
        looked = len(refs)
        if len(good) >= count_max:
            good = good[:count_max]
            looked = int(good[-1]) + 1 if count_max else 0
        stays = np.ones(looked, np.bool_)
        stays[good] = False
        for place, key in follows.items():
            if place < looked:
                stays[place] = False
                lot.park(key, int(refs[place]))
        if some(stays):
            lot.park_many(keys[:looked][stays], refs[:looked][stays])
        mine = keys[good]
        claimed.add(mine[mine != 0])
        return good, looked

    def _owners(self, keys: Keys, origins: Int64Array, retrying: Mask) -> Mask:
        """Which of the messages are those that keep their keys for a retry."""
        out = np.zeros(len(keys), np.bool_)
        for place in np.flatnonzero(retrying).tolist():
            out[place] = self._retries[int(keys[place])] == int(origins[place])
        return out

    def _followers(self, origins: Int64Array) -> dict[int, int]:
        """Places of messages that wait for another's end, and under which key."""
        waits = self._waits
        return {at: waits[each] for at, each in enumerate(origins.tolist()) if each in waits}

    def choose(self, rows: RowArray, count_max: int) -> Int64Array:
        """Places of at most `count_max` rows, asked for by name, that may go out now.

        What has to wait stays where it is, in the queue or parked: who names one message changes
        nothing about the order of the others.
        """
        out: list[int] = []
        claimed: set[int] = set()
        keys = rows["key_hash"].astype(np.uint64)
        columns = (keys.tolist(), rows["origin"].tolist(), self._working.find(keys).tolist())
        for at, (key, origin, is_held) in enumerate(zip(*columns, strict=True)):
            if len(out) == count_max:
                break
            if origin in self._waits:
                self._watched.add(self._waits[origin])
                continue
            if key:
                if is_held or self._retries.get(key, origin) != origin:
                    self._watched.add(key)
                    continue
                if key in claimed:
                    continue
                claimed.add(key)
            out.append(at)
        return np.array(out, np.int64)
