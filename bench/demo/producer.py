"""The demo's producer process: sends each flight's reminder some seconds before it is due.

Batches carry a producer name and a sequence, so one whose answer was lost is simply sent again
until it is answered, and the broker adds it once. A batch with all its tries is one call of the
history: from the first try's begin to the answer. That is the strict reading, since a reminder
that a second try doubled would have an id that no answer ever named.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import numpy as np
from flights import DAY_MINUTES, FlightsMissing, load_flights
from stage import (
    PRODUCER,
    TOPIC,
    keep_saying,
    now_ms,
    pause_after,
    say,
    stdin_closed,
    was_possibly_done,
)

from delaylog.broker.history.recorder import HistoryRecorder, body_hash
from delaylog.client import AsyncPlainClient, ClientError
from delaylog.client.wire.bulk import CREATED, SendAnswer, ref_to_id

OPEN_MAX = 4
"""Batches under way at once; a broker remembers the last 64 sequences of a producer."""


class Producer:
    """Sends batches in the order of their time and keeps the answers."""

    def __init__(self, client: AsyncPlainClient, recorder: HistoryRecorder) -> None:
        self._client = client
        self._recorder = recorder
        self.sent = 0
        self.sent_late = 0
        self.repeated = 0
        self.lost_answers = 0
        self.refs: list[np.ndarray] = []
        self.dues_ms: list[np.ndarray] = []

    async def send(self, sequence: int, dues_ms: np.ndarray, bodies: list[bytes]) -> None:
        """One batch, repeated until it is answered."""
        t0 = now_ms()
        while True:
            try:
                answer = await self._client.send_bulk(
                    TOPIC, bodies, deliver_at_ms=dues_ms, producer=PRODUCER, sequence=sequence
                )
                break
            except ClientError as error:
                self.repeated += 1
                self.lost_answers += was_possibly_done(error)
                await pause_after(error)
        self._keep(t0, now_ms(), answer, dues_ms, bodies)

    def _keep(
        self, t0: int, t1: int, answer: SendAnswer, asked_ms: np.ndarray, bodies: list[bytes]
    ) -> None:
        if answer.n != len(bodies) or set(answer.result) != {CREATED}:
            raise SystemExit(f"{answer.n} rows answered for {len(bodies)}, or not all created")
        due_ms = np.asarray(answer.deliver_at_ms)
        if (due_ms < asked_ms).any():
            raise SystemExit("a due time was answered that is earlier than the one asked for")
        self.sent_late += int((due_ms > asked_ms).sum())
        self._recorder.call(
            "send",
            t0,
            t1,
            True,
            ids=list(map(ref_to_id, answer.refs.tolist())),
            dues=answer.deliver_at_ms.tolist(),
            bodies=list(map(body_hash, bodies)),
            result="created",
        )
        self.refs.append(np.asarray(answer.refs))
        self.dues_ms.append(due_ms)
        self.sent += len(bodies)


async def run(options: argparse.Namespace) -> None:
    """Load the flights, wait for the day to be set, send them all, leave the answers in files."""
    flights = load_flights(options.flights)
    say(loaded=len(flights))
    day_start_ms = json.loads(sys.stdin.readline())["day_start_ms"]
    scale_ms = options.day_s * 1000 / DAY_MINUTES
    dues_ms = day_start_ms + (flights.minute_of_day * scale_ms).astype(np.int64)
    recorder = HistoryRecorder(options.folder / "producer.jsonl", client="producer")
    with recorder:
        async with AsyncPlainClient(options.url) as client:
            producer = Producer(client, recorder)
            saying = asyncio.create_task(keep_saying(lambda: {"sent": producer.sent}))
            sending = asyncio.create_task(send_all(producer, dues_ms, flights.bodies, options))
            orphaned = asyncio.create_task(stdin_closed())
            await asyncio.wait([sending, orphaned], return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise SystemExit("the conductor is gone")
            await sending
            saying.cancel()
            orphaned.cancel()
    np.savez(
        options.folder / "sent.npz",
        refs=np.concatenate(producer.refs),
        dues_ms=np.concatenate(producer.dues_ms),
    )
    say(
        sent=producer.sent,
        sent_late=producer.sent_late,
        repeated=producer.repeated,
        lost_answers=producer.lost_answers,
        done=True,
    )


async def send_all(
    producer: Producer, dues_ms: np.ndarray, bodies: list[bytes], options: argparse.Namespace
) -> None:
    """Each batch when its first reminder is `lead_s` away; at once if that has passed."""
    sending: set[asyncio.Task[None]] = set()
    for sequence, first in enumerate(range(0, len(bodies), options.batch)):
        rows = slice(first, first + options.batch)
        early_s = int(dues_ms[first]) / 1000 - options.lead_s - time.time()
        if early_s > 0:
            await asyncio.sleep(early_s)
        if len(sending) >= OPEN_MAX:
            done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            for sent in done:
                sent.result()
        sending.add(asyncio.create_task(producer.send(sequence, dues_ms[rows], bodies[rows])))
    await asyncio.gather(*sending)


def main() -> None:
    """Started by run.py."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--flights", type=int)
    parser.add_argument("--day-s", type=float, required=True)
    parser.add_argument("--lead-s", type=float, required=True)
    parser.add_argument("--batch", type=int, required=True)
    try:
        asyncio.run(run(parser.parse_args()))
    except FlightsMissing as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
