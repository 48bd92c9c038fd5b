"""The hold of a broker: while it is set, nothing is delivered, pushed or fired.

Everything else goes on: sends, acks, cancels, lists, settings, and what the clock ends. The hold is
part of the replicated log (HELD frames) and of checkpoints. A folder may also have an order, the
file `held`: to hold or to release the broker that serves it. `restore` and `serve --hold` leave
one. The order counts at once, and until a HELD frame behind its position is in the log; the node
appends that frame when it leads, and the file is deleted once the frame is committed.

    held   sealed file (HELD_MAGIC): a = position, b = 1 to hold, 0 to release
           payload: msgpack {since_ms, note}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from delaylog.broker.engine.errors import HeldError
from delaylog.broker.engine.late.timeline import EVERYWHERE
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem, parent_of, read_file, replace_file
from delaylog.storage.layout import HELD_MAGIC, FrameKind, open_file, seal_file

if TYPE_CHECKING:
    from delaylog.broker.engine.state import EngineState

FILE: Final = "held"
REFUSAL: Final = (
    "this broker is held: it delivers, pushes and fires nothing. When nobody else serves these "
    "messages, release it with `delaylog resume`, or start it with --release-hold"
)


class Hold(NamedTuple):
    """Since when a broker is held, and why."""

    since_ms: int
    note: str


@dataclass(frozen=True, slots=True)
class Order:
    """What the file of a folder orders."""

    hold: Hold | None
    """None: release the broker."""
    position: int
    """Where the log ended when the order was left: a HELD frame behind it is newer."""


class Holding:
    """Whether the broker of a state is held."""

    def __init__(self) -> None:
        self.hold: Hold | None = None
        """What the log says."""
        self.end = 0
        """The end of the newest HELD frame; 0 = there is none."""
        self.order: Order | None = None

    @property
    def ordered(self) -> Order | None:
        """The order, unless the log is newer."""
        order = self.order
        return order if order is not None and order.position >= self.end else None

    @property
    def now(self) -> Hold | None:
        """The hold in force; None: messages may be delivered."""
        order = self.ordered
        return self.hold if order is None else order.hold

    def check(self) -> None:
        """Raise HeldError unless messages may be delivered. Every delivery asks here."""
        if (self.order is not None or self.hold is not None) and (hold := self.now) is not None:
            raise HeldError(REFUSAL, since_ms=hold.since_ms)

    def saved(self) -> list[Any]:
        """What a checkpoint stores."""
        return [self.end, self.hold]

    def restore(self, saved: list[Any]) -> None:
        """Restore what a checkpoint has stored."""
        self.end, hold = saved
        self.hold = None if hold is None else Hold(*hold)


# --------------------------------------------------------------------------- frames


def put_hold(state: EngineState, note: str, now_ms: int) -> bool:
    """Hold the broker; False if it is held with this note, or no other is given."""
    present = state.holding.now
    if present is not None and note in ("", present.note):
        return False
    _append(state, Hold(now_ms if present is None else present.since_ms, note), now_ms)
    return True


def release_hold(state: EngineState, now_ms: int) -> bool:
    """Release the broker; False if it is not held."""
    if state.holding.now is None:
        return False
    _append(state, None, now_ms)
    return True


def carry_out_order(state: EngineState, now_ms: int) -> None:
    """Put the order of the folder into the log of a node that leads.

    A release is put there too if nothing is held: other members may have orders to hold.
    """
    order = state.holding.ordered
    if order is not None:
        _append(state, order.hold, now_ms)


def _append(state: EngineState, hold: Hold | None, now_ms: int) -> None:
    payload = bytes(msgpack.packb({"hold": None if hold is None else hold._asdict()}))
    _, end = state.append(FrameKind.HELD, [payload], now_ms)
    apply_held(state, msgpack.unpackb(payload), end, now_ms)


def apply_held(state: EngineState, members: dict[str, Any], end: int, at_ms: int) -> None:
    """Apply a HELD frame of this time that ends at `end`."""
    hold = None if members["hold"] is None else Hold(**members["hold"])
    state.holding.end, state.holding.hold = end, hold
    if hold is None:
        state.timeline.end(EVERYWHERE, "held", at_ms)
    else:
        state.timeline.last(EVERYWHERE, "held", at_ms)


# --------------------------------------------------------------------------- orders


def leave_order(fs: FileSystem, folder: str, order: Order) -> None:
    """Leave an order for the broker that will serve the folder, durably."""
    path, hold = f"{folder}/{FILE}", order.hold
    payload = bytes(msgpack.packb(() if hold is None else hold))
    sealed = seal_file(HELD_MAGIC, payload, a=order.position, b=hold is not None)
    replace_file(fs, path, [sealed])
    fs.sync_folder(parent_of(path))


def read_order(fs: FileSystem, folder: str) -> Order | None:
    """The order in a folder, if there is one. Raises CorruptionError."""
    path = f"{folder}/{FILE}"
    if not fs.exists(path):
        return None
    opened = open_file(HELD_MAGIC, read_file(fs, path))
    if opened is None:
        what = "a damaged order to hold: `serve --hold` or `serve --release-hold` replaces it"
        raise CorruptionError(what, path=path, position=0)
    payload, position, held = opened
    return Order(Hold(*msgpack.unpackb(payload)) if held else None, position)


def clear_order(fs: FileSystem, folder: str) -> None:
    """Delete the order: the log has it, or is newer."""
    path = f"{folder}/{FILE}"
    if fs.exists(path):
        fs.unlink(path)
