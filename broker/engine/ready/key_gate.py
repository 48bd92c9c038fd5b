"""Key gate: messages of one key are handed out one at a time, in order; other keys go on.

A key is locked from the lease of one of its messages until that message has ended, retries
included. Messages that become ready meanwhile are parked under the key (parking.py), so that they
do not block the ready queue, and may go out once the key is unlocked. Which keys are locked follows
from frames, and checkpoints store it. Parked refs are hints, built anew after a restart.

A successor, a message sent while another one with its id was under lease, waits for the end of its
predecessor in the same way, under a key of its own: minus the predecessor's origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.ready.key_table import Keys, KeyTable, TakenKeys, member_mask, repeated
from delaylog.broker.engine.ready.parking_lot import Parking, ParkingLot, UnparkedQueue
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.storage.columns import Mask, some
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array, RowArray

NO_KEYS: Final[dict[str, Any]] = {"keys": b"", "owners": b"", "waits": [], "heirs": []}
"""`snapshot` of a gate without locked keys or waiting messages."""


class KeyGate:
    """Keys of one group."""

    __slots__ = (
        "_awaited",
        "_heirs",
        "_retries",
        "_retry_keys",
        "_waits",
        "_watched",
        "_watched_free",
        "_working",
        "parking",
    )

    def __init__(self, make_run: Callable[[], ScratchQueue]) -> None:
        self.parking = Parking(make_run)
        self._watched: set[int] = set()
        """Locked keys that a waiting consumer may depend on though nothing is parked under them.

        A message requested by id is not parked, and refs of a lot that was emptied are back in the
        queues.
        """
        self._watched_free = False
        self._working = KeyTable()
        """Keys of messages under lease."""
        self._retries: dict[int, int] = {}
        """Keys of messages that wait for a retry, or are ready for it, with their origins."""
        self._retry_keys: dict[int, int] = {}
        """The same by origin."""
        self._awaited: dict[int, tuple[list[int], set[int]]] = {}
        """Predecessors, by origin: the origins of their successors, and the hashes of their ids.

        Indexed by predecessor, since thousands of messages may end in one call.
        """
        self._waits: dict[int, int] = {}
        """Origins of successors, and the key under which each waits."""
        self._heirs: dict[int, int] = {}
        """By hash of an id: origin of the message that the next one with that id waits for."""

    # ------------------------------------------------------------------ locks

    @property
    def in_use(self) -> bool:
        """Whether any key is locked or any message waits for the end of another."""
        return bool(self._working.count or self._retries or self._awaited)

    @property
    def idle(self) -> bool:
        """Whether no key is locked, no message waits for another and no ref is parked."""
        return not (self.in_use or len(self.parking.any))

    @property
    def has_blockers(self) -> bool:
        """Whether the end of a message that is not under lease can matter."""
        return bool(self._retries or self._awaited)

    def lock(self, keys: Keys) -> None:
        """Lock the keys of messages that were handed out."""
        self._working.add(keys)
        if self._retries:
            for key in self._retries.keys() & keys.tolist():
                del self._retry_keys[self._retries.pop(key)]
            self._shrink()

    def retry(self, keys: Keys, origins: Int64Array) -> None:
        """Keep the keys of messages locked that returned from their leases for a retry."""
        self._working.remove(keys)
        self._retries.update(zip(keys.tolist(), origins.tolist(), strict=True))
        self._retry_keys.update(zip(origins.tolist(), keys.tolist(), strict=True))

    def wait_for(self, origin: int, predecessor: int, id_hash: int) -> None:
        """Do not hand out message `origin` before `predecessor` has ended."""
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
        """Whether any message is a successor that waits."""
        return bool(self._heirs)

    def predecessor(self, id_hash: int) -> int | None:
        """Origin of the message that the next one with this id has to wait for."""
        return self._heirs.get(id_hash)

    def unlock(self, keys: Keys) -> None:
        """Unlock the keys of messages that ended under their leases."""
        self._working.remove(keys)
        self._note_free(keys)

    def give_up(self, origins: Iterable[int]) -> None:
        """Unlock the keys that messages of these origins kept for a retry."""
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
        """Messages ended: returns the parked refs of their successors, by the queue of each."""
        out: list[tuple[TagFilter | None, list[int]]] = []
        if self._awaited:
            for origin in origins:
                if origin in self._awaited:
                    out += self._inherit(origin)
        return out

    def _inherit(self, predecessor: int) -> list[tuple[TagFilter | None, list[int]]]:
        """A predecessor ended: unpark its successors."""
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
        """Clear empty dictionaries: they keep their memory until they are cleared."""
        for table in (self._retries, self._retry_keys, self._awaited, self._waits, self._heirs):
            if not table:
                table.clear()

    def purge(self, kept: Iterable[int]) -> None:
        """A purge: only messages under lease, of the origins `kept`, still lock keys."""
        self._retries.clear()
        self._retry_keys.clear()
        left = set(kept)
        if not left:
            self._working.clear()
        # No later call reports these keys as unlocked.
        self._note_watched([key for key in self._watched if key > 0 and self.is_free(key)])
        for origin in self._awaited.keys() - left:
            self._inherit(origin)

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint. Keys of leased messages are stored with the leases."""
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
        """Fill a new gate from a checkpoint; the caller locks the keys of leased messages."""
        self.retry(np.frombuffer(saved["keys"], "<u8"), np.frombuffer(saved["owners"], "<i8"))
        for origin, predecessor in saved["waits"]:
            self._wait(origin, predecessor)
        for id_hash, predecessor in saved["heirs"]:
            self._expect(id_hash, predecessor)

    # ------------------------------------------------------------------ what may go out

    @property
    def parked(self) -> int:
        """Number of parked refs."""
        return len(self.parking.any)

    @property
    def locked_count(self) -> int:
        """How many keys are locked."""
        return self._working.count + len(self._retries)

    def take_watched(self) -> bool:
        """Whether a watched key was unlocked since the last call."""
        free, self._watched_free = self._watched_free, False
        return free

    def empty_lots(self) -> UnparkedQueue | None:
        """Empty all lots because the queues are rebuilt; see `Parking.empty`."""
        self._watch([self.parking.any, *self.parking.filters.values()])
        return self.parking.empty()

    def drop_lot(self, only: TagFilter) -> None:
        """Remove the lot of a filter whose queue is closed."""
        lot = self.parking.filters.get(only)
        if lot is not None:
            self._watch([lot])
            self.parking.drop(only)

    def _watch(self, lots: list[ParkingLot]) -> None:
        """Watch the locked keys of lots that are emptied: consumers may wait for one of them."""
        lots = [lot for lot in lots if len(lot)]
        if not lots:
            return
        retries = np.fromiter(self._retries, np.uint64, len(self._retries))
        locked = np.concatenate([self._working.column(), retries])
        successors = set(self._waits.values())
        for lot in lots:
            # Both may have a million keys: look up the smaller set in the larger one.
            if len(lot) < len(locked):
                keys = np.array([key for key in lot.parked_keys() if key > 0], np.uint64)
                found = keys[self.locked(keys)]
            else:
                found = locked[lot.parked_among(locked)]
            self._watched.update(found.tolist())
            self._watched.update(filter(lot.holds, successors))

    def is_free(self, key: int) -> bool:
        """Whether no message locks a key."""
        return key not in self._working and key not in self._retries

    def retrying(self, key: int) -> int | None:
        """Origin of the message that locks a key for its retry; None if there is none."""
        return self._retries.get(key)

    def locked(self, keys: Keys) -> Mask:
        """Which of the keys are locked."""
        found = self._working.find(keys)
        return found | self._retrying(keys) if self._retries else found

    def _retrying(self, keys: Keys) -> Mask:
        """Which of the keys are locked for a retry."""
        return member_mask(keys.tolist(), lambda listed: self._retries.keys() & listed)

    def admit(
        self,
        refs: Int64Array,
        rows: RowArray,
        count_max: int,
        taken: TakenKeys,
        lot: ParkingLot,
    ) -> tuple[Int64Array, int]:
        """(indexes of refs that may be handed out now, number of refs that were examined).

        At most `count_max` are admitted. The others that were examined are parked in `lot`, the
        lot of the queue that they came from. `taken` = keys that this call hands out already.
        """
        keys, origins = rows["key_hash"].astype(np.uint64), rows["origin"]
        waiting = self._working.find(keys) | taken.find(keys)
        # Even if the key is unlocked: parked messages of the key came first.
        behind = lot.parked_among(keys)
        if self._retries:
            retrying = self._retrying(keys)
            if some(retrying):
                waiting |= retrying & ~self._owners(keys, origins, retrying)
                behind &= ~retrying
        waiting |= behind
        follows = self._followers(origins) if self._waits else {}
        waiting[list(follows)] = True
        good = np.flatnonzero(~waiting)
        # Of several messages with one key the first is admitted.
        good = good[~repeated(keys[good])]
        looked = len(refs)
        if len(good) >= count_max:
            good = good[:count_max]
            looked = int(good[-1]) + 1 if count_max else 0
        stays = np.ones(looked, np.bool_)
        stays[good] = False
        for at, key in follows.items():
            if at < looked:
                stays[at] = False
                lot.park(key, int(refs[at]))
        if some(stays):
            lot.park_many(keys[:looked][stays], refs[:looked][stays])
        mine = keys[good]
        taken.add(mine[mine != 0])
        return good, looked

    def _owners(self, keys: Keys, origins: Int64Array, retrying: Mask) -> Mask:
        """Which of the messages are themselves the ones that lock their keys for a retry."""
        out = np.zeros(len(keys), np.bool_)
        for at in np.flatnonzero(retrying).tolist():
            out[at] = self._retries[int(keys[at])] == int(origins[at])
        return out

    def _followers(self, origins: Int64Array) -> dict[int, int]:
        """Indexes of successors that wait, and the key under which each does."""
        waits = self._waits
        return {at: waits[each] for at, each in enumerate(origins.tolist()) if each in waits}

    def choose(self, rows: RowArray, count_max: int) -> Int64Array:
        """Indexes of at most `count_max` rows, requested by id, that may be handed out now.

        The others stay where they are, queued or parked: a request by id does not change the order
        of other messages.
        """
        out: list[int] = []
        taken: set[int] = set()
        keys = rows["key_hash"].astype(np.uint64)
        columns = (keys.tolist(), rows["origin"].tolist(), self._working.find(keys).tolist())
        for at, (key, origin, is_locked) in enumerate(zip(*columns, strict=True)):
            if len(out) == count_max:
                break
            if origin in self._waits:
                self._watched.add(self._waits[origin])
                continue
            if key:
                if is_locked or self._retries.get(key, origin) != origin:
                    self._watched.add(key)
                    continue
                if key in taken:
                    continue
                taken.add(key)
            out.append(at)
        return np.array(out, np.int64)
