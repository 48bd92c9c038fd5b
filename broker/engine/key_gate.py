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
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.filters import TagFilter
from delaylog.broker.engine.parking import Parking, ParkingLot
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.run_file import RunFile

_FEW: Final = 64
"""So few are looked at one by one: columns would cost more."""


class KeyGate:
    """Keys of one group."""

    def __init__(self, make_run: Callable[[], RunFile]) -> None:
        self.parking = Parking(make_run)
        self._named: set[int] = set()
        """Held keys of messages that somebody asked for by name: those may not be parked."""
        self._named_free = False
        self._working: set[int] = set()
        """Keys of messages under lease: whole columns go in and out, at the speed of C."""
        self._retries: dict[int, int] = {}
        """Keys of messages that wait for a retry or are ready for it, and those origins."""
        self._retry_keys: dict[int, int] = {}
        """The same by origin."""
        self._awaited: set[int] = set()
        """Origins of messages whose end others wait for."""
        self._waits: dict[int, int] = {}
        """Origins of messages that wait for another's end, and under which key."""
        self._heirs: dict[int, int] = {}
        """By hash of an id: the origin whose end the next message with that id waits for."""

    # ------------------------------------------------------------------ who holds what

    @property
    def holding(self) -> bool:
        """Whether anything is held, or waited for."""
        return bool(self._working or self._retries or self._awaited)

    @property
    def remembers_origins(self) -> bool:
        """Whether the end of a message that is not under lease can matter."""
        return bool(self._retries or self._awaited)

    def hold(self, keys: list[int]) -> None:
        """Messages with these keys were handed out."""
        self._working.update(keys)
        if self._retries:
            for key in self._retries.keys() & set(keys):
                del self._retry_keys[self._retries.pop(key)]

    def retry(self, keys: list[int], origins: list[int]) -> None:
        """Messages came back from their leases and keep their keys."""
        self._working.difference_update(keys)
        self._retries.update(zip(keys, origins, strict=True))
        self._retry_keys.update(zip(origins, keys, strict=True))

    def wait_for(self, origin: int, predecessor: int, id_hash: int) -> None:
        """Message `origin` is not to be handed out before `predecessor` has ended."""
        self._wait(origin, predecessor)
        self._heirs[id_hash] = predecessor

    def _wait(self, origin: int, predecessor: int) -> None:
        self._awaited.add(predecessor)
        self._waits[origin] = -predecessor

    @property
    def expecting(self) -> bool:
        """Whether any message waits for the end of another."""
        return bool(self._heirs)

    def predecessor(self, id_hash: int) -> int | None:
        """Origin of the message under lease that the next one with this id has to wait for."""
        return self._heirs.get(id_hash)

    def release(self, keys: list[int]) -> None:
        """Messages with these keys ended under their leases."""
        self._working.difference_update(keys)
        self._note_free(keys)

    def give_up(self, origins: Iterable[int]) -> None:
        """Messages that kept keys for a retry do so no more, if they are among these."""
        if self._retries:
            keys = [key for origin in origins if (key := self._retry_keys.pop(origin, 0))]
            for key in keys:
                del self._retries[key]
            self._note_free(keys)

    def _note_free(self, keys: list[int]) -> None:
        self.parking.note_free(keys)
        self._note_named(keys)

    def _note_named(self, keys: list[int]) -> None:
        if self._named:
            free = self._named.intersection(keys)
            self._named -= free
            self._named_free |= bool(free)

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
        self._awaited.discard(predecessor)
        self._note_named([-predecessor])
        self._waits = {origin: key for origin, key in self._waits.items() if key != -predecessor}
        self._heirs = {id_: origin for id_, origin in self._heirs.items() if origin != predecessor}
        return self.parking.unpark(-predecessor)

    def purge(self, kept: Iterable[int]) -> None:
        """Only what is under lease still holds: the messages with these origins."""
        self._retries.clear()
        self._retry_keys.clear()
        left = set(kept)
        if not left:
            self._working.clear()
        for origin in self._awaited - left:
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
        keys = np.frombuffer(saved["keys"], "<u8").tolist()
        self.retry(keys, np.frombuffer(saved["owners"], "<i8").tolist())
        for origin, predecessor in saved["waits"]:
            self._wait(origin, predecessor)
        self._heirs.update(saved["heirs"])

    # ------------------------------------------------------------------ what may go out

    @property
    def parked(self) -> int:
        """Refs that wait for their keys."""
        return len(self.parking.any)

    @property
    def freed(self) -> bool:
        """Whether something that was parked may go out."""
        return self.parking.freed

    def take_named(self) -> bool:
        """Whether, since the last time, a key came free of which somebody named a message."""
        free, self._named_free = self._named_free, False
        return free

    def free(self, key: int) -> bool:
        """Whether no message holds a key."""
        return key not in self._working and key not in self._retries

    def held(self, keys: list[int]) -> set[int]:
        """Those of the keys that a message holds."""
        return self._working.intersection(keys) | (self._retries.keys() & keys)

    def admit(
        self,
        refs: Int64Array,
        rows: RowArray,
        count_max: int,
        claimed: set[int],
        lot: ParkingLot,
    ) -> tuple[Int64Array, int]:
        """(places of refs that may go out now, how many refs were looked at).

        At most `count_max` are let through; what has to wait is parked in the lot of the queue
        that brought it. `claimed` are the keys that this call hands out already.
        """
        out: list[Int64Array] = []
        at, left = 0, count_max
        while left and at < len(refs):
            if left < _FEW:
                keys, origins = rows["key_hash"][at:].tolist(), rows["origin"][at:].tolist()
                good: list[int] = []
                begun = at
                for key, origin in zip(keys, origins, strict=True):
                    if self._admit_one(key, origin, int(refs[at]), claimed, lot):
                        good.append(at - begun)
                    at += 1
                    if len(good) == left:
                        break
                out.append(np.array(good, np.int64) + begun)
                break
            end = min(at + left, len(refs))
            out.append(self._admit_block(refs[at:end], rows[at:end], claimed, lot) + at)
            left -= len(out[-1])
            at = end
        return (np.concatenate(out) if out else np.zeros(0, np.int64)), at

    def _admit_block(
        self, refs: Int64Array, rows: RowArray, claimed: set[int], lot: ParkingLot
    ) -> Int64Array:
        """Places of those that may go out: all but a few, which are looked at one by one."""
        hashes = rows["key_hash"]
        keys = hashes.tolist()
        distinct = set(keys)
        # All sets at once: a look at each key would cost as much as the rest of the call.
        held = (distinct & self._working) | (distinct & claimed) | lot.held(distinct)
        odd = distinct if self._waits else distinct & self._retries.keys()
        doubtful = held | odd
        if len(distinct) < len(keys):
            found, counts = np.unique(hashes, return_counts=True)
            doubtful.update(found[counts > 1].tolist())
        if not self._waits:
            distinct.discard(0)
            doubtful.discard(0)
        if not doubtful:
            claimed |= distinct
            return np.arange(len(refs))
        claimed |= distinct - doubtful
        good = np.ones(len(refs), np.bool_)
        waiting: list[int] = []
        for place in [place for place, key in enumerate(keys) if key in doubtful]:
            key = keys[place]
            if key in odd:
                origin = int(rows["origin"][place])
                good[place] = self._admit_one(key, origin, int(refs[place]), claimed, lot)
            elif key in held:
                waiting.append(place)
            else:
                # The first of several: the others wait for it.
                held.add(key)
                claimed.add(key)
        lot.park_many([keys[place] for place in waiting], refs[waiting].tolist())
        good[waiting] = False
        return np.flatnonzero(good)

    def _admit_one(
        self, key: int, origin: int, ref: int, claimed: set[int], lot: ParkingLot
    ) -> bool:
        """Let one message through, or park it."""
        end_of = self._waits.get(origin) if self._waits else None
        if end_of is not None:
            lot.park(end_of, ref)
            return False
        if not key:
            return True
        owner = self._retries.get(key)
        # Behind what is parked, when the key is free: that came first.
        if owner is None:
            other = lot.holds(key)
        else:
            other = owner != origin
        if other or key in claimed or key in self._working:
            lot.park(key, ref)
            return False
        claimed.add(key)
        return True

    def choose(self, rows: RowArray, count_max: int, claimed: set[int]) -> Int64Array:
        """Places of at most `count_max` rows, asked for by name, that may go out now.

        What has to wait stays where it is, in the queue or parked: who names one message changes
        nothing about the order of the others.
        """
        out: list[int] = []
        for at, (key, origin) in enumerate(
            zip(rows["key_hash"].tolist(), rows["origin"].tolist(), strict=True)
        ):
            if len(out) == count_max:
                break
            if origin in self._waits:
                self._named.add(self._waits[origin])
                continue
            if key:
                if key in self._working or self._retries.get(key, origin) != origin:
                    self._named.add(key)
                    continue
                if key in claimed:
                    continue
                claimed.add(key)
            out.append(at)
        return np.array(out, np.int64)
