"""Control in bulk: sends with ids of the client's own, then all of them moved and cancelled.

By refs and by ids, each on a fresh broker. Ids are random, so nothing about them is near anything
else; every answer is looked at, since a change that says anything but `done` would be cheaper.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgpack
import numpy as np
from broker_process import Brokers
from load import Buffer, Driver, LoadError, expect_ok
from sending import Stopwatch, Timed, spread_dues
from settings import BODY_BYTES, CONTROL_BATCH, CONTROL_LANES, Settings
from tables import Column, Table, Target, at_least, mebibytes, microseconds, rate
from wire import BULK_TYPE, http_request, unpack
from workers import run_apart

ID_BYTES: Final = 16
HOURS: Final = 24
TOPIC: Final = "t"


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Both cases: three calls each, over all messages."""
    table = Table(
        f"control: {CONTROL_BATCH:,} a batch, {CONTROL_LANES} connections, over {HOURS} h",
        [
            Column("messages", "messages", lambda count: f"{count:,}"),
            Column("messages/s", "rate", rate),
            Column("server CPU us", "server_us", microseconds),
            Column("client CPU us", "client_us", microseconds),
            Column("RSS MiB", "rss", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    for by, messages in (("refs", settings.control_messages), ("ids", settings.id_messages)):
        with brokers.fresh() as broker:
            runs = run_apart(
                timed_calls, broker.port, broker.process_id, messages=messages, by=by
            ).value
            resident = broker.resident()
        for name, timed in runs:
            figures = {
                "messages": timed.messages,
                "rate": timed.rate,
                "server_us": timed.server_us,
                "client_us": timed.client_us,
            }
            figures |= {"rss": resident.total, "rss_peak": resident.peak}
            table.add(f"{name} by {by}", figures, _targets(name, by, timed))
    return table


def _targets(name: str, by: str, timed: Timed) -> list[Target]:
    if name != "send":
        return [at_least(timed.rate, 100e3, "100 k/s")]
    return [at_least(timed.rate, 150e3, "150 k/s")] if by == "ids" else []


class _Calls:
    """Bulk calls one after the other over all lanes; what was answered goes to `take`."""

    def __init__(
        self, verb: str, bodies: Iterator[bytes], take: Callable[[dict[str, Any]], None]
    ) -> None:
        self._path = f"/v1/topics/{TOPIC}/messages{verb}"
        self._bodies = bodies
        self._take = take

    def request(self, lane: int) -> Sequence[Buffer] | None:  # noqa: ARG002 (a Script)
        body = next(self._bodies, None)
        if body is None:
            return None
        head = http_request("POST", self._path, len(body), content=BULK_TYPE, accept=BULK_TYPE)
        return (head, body)

    def answer(self, lane: int, status: int, body: memoryview) -> None:  # noqa: ARG002
        expect_ok(status, body)
        self._take(unpack(body))


def timed_calls(
    port: int, server_id: int, *, messages: int, by: str, hours: int = HOURS
) -> list[tuple[str, Timed]]:
    """(call, how it went): send, reschedule and cancel of all messages."""
    batches = messages // CONTROL_BATCH
    total = batches * CONTROL_BATCH
    names = [secrets.token_hex(CONTROL_BATCH * ID_BYTES // 2).encode() for _ in range(batches)]
    refs: list[bytes] = []
    answers: dict[str, Callable[[dict[str, Any]], None]] = {
        "send": lambda fields: refs.append(fields["refs"]),
        "reschedule": _all_done,
        "cancel": _all_done,
    }
    out = []
    with Driver(port, CONTROL_LANES) as driver:
        for name, take in answers.items():
            which: Iterator[dict[str, Any]]
            if by == "ids":
                which = ({"id_size": ID_BYTES, "id": block} for block in names)
            else:
                which = iter([{}] * batches if name == "send" else [{"refs": r} for r in refs])
            watch = Stopwatch(server_id)
            verb = "" if name == "send" else f":{name}"
            driver.run(_Calls(verb, _bodies(name, which, hours), take))
            out.append((name, watch.read(total)))
    return out


def _bodies(name: str, which: Iterator[dict[str, Any]], hours: int) -> Iterator[bytes]:
    n = CONTROL_BATCH
    for number, columns in enumerate(which):
        fields: dict[str, Any] = {"v": 1, "n": n, **columns}
        if name != "cancel":
            dues = spread_dues(n, hours, seed=number + (len(name) << 32))
            fields["deliver_at_ms"] = dues.astype("<i8").tobytes()
        if name == "send":
            fields |= {"body_size": BODY_BYTES, "bodies": bytes(n * BODY_BYTES)}
        yield msgpack.packb(fields)


def _all_done(fields: dict[str, Any]) -> None:
    if np.frombuffer(fields["result"], np.uint8).any():
        raise LoadError("a message could not be changed")
