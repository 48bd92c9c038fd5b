"""Key gate: messages of one key are handed out one at a time, in order; other keys go on.

A key is held from the lease of one of its messages until that message has ended, its retries
included. What comes up meanwhile is parked under the key, so the ready queue never stands still,
and comes out when the key is free. Who holds which key follows from frames and stands in
checkpoints; what is parked are hints, made anew after a restart.

A message that was sent while another one with its id was under lease waits for that one's end in
the same way, under a key of its own: minus the origin it waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.parked_spill import ParkedSpill
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.run_file import RunFile

PARKED_MAX: Final = 262_144
"""Parked refs in memory; what is beyond goes to disk."""


class KeyGate:
    """Keys of one group."""

    def __init__(self, make_run: Callable[[], RunFile], parked_max: int = PARKED_MAX) -> None:
        self._parked_max = parked_max
        self._holders: dict[int, int] = {}
        """Origin of the message that holds each key."""
        self._held: dict[int, tuple[int, ...]] = {}
        """The keys that each of those holds."""
        self._waits: dict[int, int] = {}
        """Origins of messages that wait for another's end, and under which key."""
        self._heirs: dict[int, int] = {}
        """By hash of an id: the origin whose end the next message with that id waits for."""
        self._parked: dict[int, deque[int]] = {}
        self._parked_count = 0
        self._freed: dict[int, None] = {}
        """Free keys with something parked, in the order in which they came free."""
        self._spill = ParkedSpill(make_run)

    # ------------------------------------------------------------------ who holds what

    @property
    def holding(self) -> bool:
        """Whether any key is held."""
        return bool(self._held)

    def hold(self, rows: RowArray) -> None:
        """Messages were handed out: their keys are theirs."""
        hashes, origins = rows["key_hash"].tolist(), rows["origin"].tolist()
        holders, held = self._holders, self._held
        for key, origin in zip(hashes, origins, strict=True):
            if key and holders.get(key) != origin:
                holders[key] = origin
                held[origin] = (*held.get(origin, ()), key)

    def wait_for(self, origin: int, predecessor: int, id_hash: int) -> None:
        """Message `origin` is not to be handed out before `predecessor` has ended."""
        key = -predecessor
        if key not in self._holders:
            self._holders[key] = predecessor
            self._held[predecessor] = (*self._held.get(predecessor, ()), key)
        self._waits[origin] = key
        self._heirs[id_hash] = predecessor

    @property
    def expecting(self) -> bool:
        """Whether any message waits for the end of another."""
        return bool(self._heirs)

    def predecessor(self, id_hash: int) -> int | None:
        """Origin of the message under lease that the next one with this id has to wait for."""
        return self._heirs.get(id_hash)

    def release(self, origins: Iterable[int]) -> list[int]:
        """Messages ended or gave up their keys; refs that go back to the ready queue's front."""
        out: list[int] = []
        held = self._held
        for origin in origins:
            keys = held.pop(origin, None)
            if keys is None:
                continue
            for key in keys:
                del self._holders[key]
                if key < 0:
                    out += self._inherit(key)
                elif key in self._parked or self._spill.holds(key):
                    self._freed[key] = None
        return out

    def _inherit(self, key: int) -> list[int]:
        """The end of a predecessor: whoever waited for it goes on."""
        self._waits = {origin: which for origin, which in self._waits.items() if which != key}
        self._heirs = {id_: origin for id_, origin in self._heirs.items() if origin != -key}
        refs = self._parked.pop(key, deque())
        self._parked_count -= len(refs)
        return list(refs)

    def release_all_but(self, origins: Iterable[int]) -> list[int]:
        """After a purge: only what is under lease still holds."""
        kept = set(origins)
        return self.release([origin for origin in self._held if origin not in kept])

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint."""
        keys = np.array([key for key in self._holders if key > 0], np.uint64)
        owners = np.array([origin for key, origin in self._holders.items() if key > 0], "<i8")
        waits = [[origin, -key] for origin, key in self._waits.items()]
        heirs = [[id_hash, origin] for id_hash, origin in self._heirs.items()]
        return {"keys": keys.tobytes(), "owners": owners.tobytes(), "waits": waits, "heirs": heirs}

    def restore(self, saved: dict[str, Any]) -> None:
        """Fill a new gate from a checkpoint."""
        keys = np.frombuffer(saved["keys"], "<u8").tolist()
        for key, origin in zip(keys, np.frombuffer(saved["owners"], "<i8").tolist(), strict=True):
            self._holders[key] = origin
            self._held[origin] = (*self._held.get(origin, ()), key)
        of_predecessor = {origin: id_hash for id_hash, origin in saved["heirs"]}
        for origin, predecessor in saved["waits"]:
            self.wait_for(origin, predecessor, of_predecessor[predecessor])

    # ------------------------------------------------------------------ what may go out

    @property
    def parked(self) -> int:
        """Refs that wait for their keys."""
        return self._parked_count + len(self._spill)

    @property
    def freed(self) -> bool:
        """Whether something that was parked may go out."""
        return bool(self._freed) or self._spill.wanted

    @property
    def reading(self) -> bool:
        """Whether parked refs are being looked for on disk."""
        return self._spill.wanted

    def admit(
        self, refs: Int64Array, rows: RowArray, count_max: int, claimed: set[int]
    ) -> tuple[Int64Array, int]:
        """(places of refs that may go out now, how many refs were looked at).

        At most `count_max` are let through; what has to wait is parked. `claimed` are the keys
        that this call hands out already.
        """
        keys, origins = rows["key_hash"].tolist(), rows["origin"].tolist()
        holders, parked, waits = self._holders, self._parked, self._waits
        out: list[int] = []
        for at, (key, origin) in enumerate(zip(keys, origins, strict=True)):
            if len(out) == count_max:
                return np.array(out, np.int64), at
            if waits and (end_of := waits.get(origin)) is not None:
                self._park(end_of, int(refs[at]))
                continue
            if key:
                holder = holders.get(key)
                # Behind what is parked, when the key is free: that came first.
                other = (
                    key in parked or self._spill.holds(key) if holder is None else holder != origin
                )
                if other or key in claimed:
                    self._park(key, int(refs[at]))
                    continue
                claimed.add(key)
            out.append(at)
        return np.array(out, np.int64), len(refs)

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
                continue
            if key:
                if self._holders.get(key, origin) != origin or key in claimed:
                    continue
                claimed.add(key)
            out.append(at)
        return np.array(out, np.int64)

    def _park(self, key: int, ref: int) -> None:
        # Behind what is on disk already, or the order inside the key would be lost. Few wait for
        # another's end: those stay in memory.
        if key > 0 and (self._parked_count >= self._parked_max or self._spill.holds(key)):
            self._spill.push(key, ref)
            return
        queue = self._parked.get(key)
        if queue is None:
            queue = self._parked[key] = deque()
        queue.append(ref)
        self._parked_count += 1

    def take_freed(self, count: int, claimed: set[int]) -> list[tuple[int, int]]:
        """Up to `count` (key, first parked ref) of free keys that the call has not claimed.

        Each is claimed from now on, or handed to `still_free`.
        """
        out: list[tuple[int, int]] = []
        self._read_spill()
        for key in list(self._freed):
            if len(out) == count:
                break
            if key in claimed:
                continue
            del self._freed[key]
            queue = self._parked.get(key)
            if key in self._holders:
                continue
            if not queue:
                if self._spill.holds(key):
                    self._spill.want(key)
                continue
            out.append((key, queue.popleft()))
            self._parked_count -= 1
            if not queue:
                del self._parked[key]
        return out

    def pop_freed(self) -> list[int]:
        """All that is parked in memory under free keys, in order."""
        keys = [key for key in self._freed if key not in self._holders]
        self._freed.clear()
        for key in keys:
            self._spill.want(key)
        return self.unpark(keys)

    def still_free(self, key: int) -> None:
        """What `take_freed` gave for a key meant nothing any more: its next one may go out."""
        if key not in self._holders and (key in self._parked or self._spill.holds(key)):
            self._freed[key] = None

    def unpark(self, keys: Iterable[int]) -> list[int]:
        """All that is parked in memory under keys, in order, for the front of the ready queue."""
        out: list[int] = []
        for key in keys:
            queue = self._parked.pop(key, None)
            if queue:
                out += queue
                self._parked_count -= len(queue)
        return out

    def _read_spill(self) -> None:
        """Bring refs of wanted keys back into memory, a slice at a time."""
        if self._spill.wanted:
            for key, ref in self._spill.read(self._free):
                self._parked.setdefault(key, deque()).append(ref)
                self._parked_count += 1
                if len(self._parked[key]) == 1:
                    self._freed[key] = None

    def _free(self, key: int) -> bool:
        return key not in self._holders

    def clear_parked(self) -> None:
        """Forget the hints: what is parked will come up again, or has ended."""
        self._parked.clear()
        self._freed.clear()
        self._parked_count = 0
        self._spill.clear()
