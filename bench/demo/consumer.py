"""The demo's consumer process: loops that receive, note the time, and ack on the side.

A receipt's time is taken when the messages are in the program's hands. The next receive does not
wait for the ack of the last, whose answer comes with an fsync of the broker. An ack whose answer
was lost is left alone: if the broker did not get it, the lease runs out and the message comes
again, which is what at-least-once means; the proof counts those. Ends when the conductor closes
its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
from stage import TOPIC, keep_saying, now_ms, pause_after, say, stdin_closed, was_possibly_done

from delaylog.broker.history.recorder import HistoryRecorder, body_hash
from delaylog.client import AsyncPlainClient, ClientError
from delaylog.client.wire.bulk import ReceivedBatch

WAIT_MS = 500
ROWS_MAX = 2_000
ACKS_OPEN_MAX = 8
"""Acks under way in a loop before it waits for them: a stalled broker must not pile them up."""


class Consumer:
    """Receives until told to stop; all loops share one history and one list of receipts."""

    def __init__(self, client: AsyncPlainClient, recorder: HistoryRecorder, lease_ms: int) -> None:
        self._client = client
        self._recorder = recorder
        self._lease_ms = lease_ms
        self.stopping = False
        self.received = 0
        self.acks_lost = 0
        self.refs: list[np.ndarray] = []
        self.times_ms: list[np.ndarray] = []

    async def loop(self) -> None:
        """Receive and ack, one batch after the other."""
        acks: set[asyncio.Task[None]] = set()
        while not self.stopping:
            if len(acks) >= ACKS_OPEN_MAX:
                await asyncio.wait(acks, return_when=asyncio.FIRST_COMPLETED)
            for ack in [ack for ack in acks if ack.done()]:
                acks.discard(ack)
                ack.result()
            t0 = now_ms()
            try:
                batch = await self._client.receive_bulk(
                    TOPIC,
                    max=ROWS_MAX,
                    wait=timedelta(milliseconds=WAIT_MS),
                    lease=timedelta(milliseconds=self._lease_ms),
                )
            except ClientError as error:
                if was_possibly_done(error):
                    self._recorder.call("deliver", t0, now_ms(), None, lease_ms=self._lease_ms)
                await pause_after(error)
                continue
            received_ns = time.time_ns()
            if batch.n:
                leases = self._keep(t0, received_ns, batch)
                acks.add(asyncio.create_task(self._ack(batch, leases)))
        await asyncio.gather(*acks)

    def _keep(self, t0: int, received_ns: int, batch: ReceivedBatch) -> list[str]:
        self.received += batch.n
        self.refs.append(np.asarray(batch.refs))
        self.times_ms.append(np.full(batch.n, received_ns / 1e6))
        leases = [f"{batch.lease:016x}{ref & (2**64 - 1):016x}" for ref in batch.refs.tolist()]
        # The lease's end tells the broker's clock as it began, which is before the answer's own.
        stated_ms = batch.lease_until_ms - self._lease_ms
        self._recorder.call(
            "deliver",
            t0,
            received_ns // 1_000_000,
            True,
            ids=batch.ids,
            dues=batch.deliver_at_ms.tolist(),
            attempts=batch.attempts.tolist(),
            bodies=list(map(body_hash, batch.bodies())),
            leases=leases,
            now=stated_ms if batch.now_ms is None else min(stated_ms, batch.now_ms),
            lease_ms=self._lease_ms,
            lease_until=batch.lease_until_ms,
        )
        return leases

    async def _ack(self, batch: ReceivedBatch, leases: list[str]) -> None:
        t0 = now_ms()
        try:
            answer = await self._client.settle_bulk(TOPIC, "ack", batch.lease)
        except ClientError as error:
            self.acks_lost += batch.n
            ok = None if was_possibly_done(error) else False
            self._recorder.call("ack", t0, now_ms(), ok, ids=batch.ids, leases=leases)
            await pause_after(error)
            return
        refused = set(answer.gone.tolist()) | set(answer.unknown.tolist())
        oks = [ref not in refused for ref in batch.refs.tolist()]
        self._recorder.call("ack", t0, now_ms(), None, ids=batch.ids, leases=leases, oks=oks)


async def run(options: argparse.Namespace) -> None:
    """Receive until standard input closes, then leave the receipts in files."""
    name = f"consumer-{options.number}"
    with HistoryRecorder(options.folder / f"{name}.jsonl", client=name) as recorder:
        async with AsyncPlainClient(options.url) as client:
            consumer = Consumer(client, recorder, options.lease_ms)
            saying = asyncio.create_task(keep_saying(lambda: {"received": consumer.received}))
            loops = [asyncio.create_task(consumer.loop()) for _ in range(options.loops)]
            stop = asyncio.create_task(stdin_closed())
            await asyncio.wait([stop, *loops], return_when=asyncio.FIRST_COMPLETED)
            consumer.stopping = True
            await asyncio.gather(*loops)
            saying.cancel()
            stop.cancel()
    np.savez(
        options.folder / f"{name}.npz",
        refs=np.concatenate([np.empty(0, np.int64), *consumer.refs]),
        times_ms=np.concatenate([np.empty(0), *consumer.times_ms]),
    )
    say(received=consumer.received, acks_lost=consumer.acks_lost, done=True)


def main() -> None:
    """Started by run.py."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--lease-ms", type=int, required=True)
    parser.add_argument("--loops", type=int, required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
