"""`make demo`: a year of New York's departures on one day's clock, and a broker killed at noon.

    python bench/demo/run.py [--flights N] [--day-s 20] [--no-kill] [--keep]

A real broker on a temporary folder, one producer process and two consumer processes, all over HTTP
on loopback. The producer sends every flight's reminder some seconds before its folded departure;
at the folded noon the broker gets SIGKILL and is started again on the same folder and port, and
nobody tells the clients. At the end stand the lateness histograms and the proof; the exit status
is 0 only if the proof holds.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from conductor import Child, children_ended, spawn
from histogram import draw, milliseconds
from proof import Outage, Proof, prove
from stage import TOPIC, now_ms

from delaylog.broker.history import RULES, HistoryRecorder
from delaylog.client import AsyncPlainClient, ClientError
from delaylog.client.child_broker import BrokerStartError, ChildBroker

CONSUMERS = 2
LOOPS = 2
BATCH_ROWS = 1_000
LEASE_MS = 5_000
"""Short, so that what was leased at the kill comes again while one watches."""
LEAD_S = 5.0
"""How long before its time a reminder is sent; longer than a restart takes, so that the kill hits
ingest and delivery but nothing has to be sent after its time."""
DRAIN_TIMEOUT_S = 25.0
CAUSES = {"lease": "as the first one's lease ran out", "kill": "as the kill lost the lease"}


class DemoFailed(Exception):
    """The demo could not be played to its end; the message says what got in the way."""


class Demo:
    """The conductor: starts and kills, tells the time, waits for the end."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._day_start_ms = 0
        self._broker = ChildBroker(folder / "data")
        self._broker_state = "up"
        self._marks = HistoryRecorder(folder / "conductor.jsonl")
        self._producer: Child | None = None
        self._consumers: list[Child] = []
        self.outage: Outage | None = None

    async def play(self) -> None:
        """The whole day; the files for the proof are complete when it returns."""
        async with self._broker:
            say(f"broker    {self._broker.url}, started in {self._broker.started_in_s:.2f} s")
            async with AsyncPlainClient(self._broker.url) as client:
                # Without backoff what was leased at the kill is ready again as its lease ends.
                await client.put_topic(TOPIC, {"backoff": {"first_ms": 0}})
            try:
                await self._start_children()
                killing = asyncio.create_task(self._kill_at_noon())
                try:
                    await self._watch(killing)
                finally:
                    killing.cancel()
                await self._finish_children()
                self._marks.mark("end", now_ms())
            finally:
                for child in self._children:
                    await child.kill()
            status = await self._broker.stop()
            say(f"broker    ended on SIGTERM with status {status}")

    @property
    def _children(self) -> list[Child]:
        return [*([self._producer] if self._producer else []), *self._consumers]

    async def _start_children(self) -> None:
        options, common = self._options, ["--url", self._broker.url, "--folder", str(self._folder)]
        flights = [] if options.flights is None else ["--flights", str(options.flights)]
        day = ["--day-s", str(options.day_s), "--lead-s", str(LEAD_S), "--batch", str(BATCH_ROWS)]
        self._producer = await spawn("producer.py", *common, *day, *flights)
        for number in range(CONSUMERS):
            shape = ["--number", str(number), "--lease-ms", str(LEASE_MS), "--loops", str(LOOPS)]
            self._consumers.append(await spawn("consumer.py", *common, *shape))
        while "loaded" not in self._producer.facts:
            self._check_children()
            await asyncio.sleep(0.02)
        say(
            f"flights   {self._producer.facts['loaded']:,} of 2013, folded onto one day of"
            f" {options.day_s:g} s; each reminder is sent {LEAD_S:g} s before its time"
        )
        self._day_start_ms = now_ms() + 200
        self._producer.tell(day_start_ms=self._day_start_ms)

    async def _kill_at_noon(self) -> None:
        if self._options.no_kill:
            return
        noon_s = self._day_start_ms / 1000 + self._options.day_s / 2
        await asyncio.sleep(max(noon_s - time.time(), 0))
        killed_ms = now_ms()
        self._broker_state = f"KILLED with -9 (process {self._broker.process_id})"
        await self._broker.kill()
        await self._broker.start()
        self.outage = Outage(killed_ms, now_ms())
        self._marks.mark("kill", killed_ms, until=self.outage.ready_ms)
        down_s = (self.outage.ready_ms - killed_ms) / 1000
        self._broker_state = f"up again after {down_s:.2f} s (process {self._broker.process_id})"

    async def _watch(self, killing: asyncio.Task[None]) -> None:
        """A line a second until the producer is done and the broker holds nothing more."""
        begun = time.monotonic()
        while True:
            second = int(time.monotonic() - begun) + 1
            while time.monotonic() - begun < second:
                await asyncio.sleep(0.05)
                self._check_children()
                if killing.done():
                    killing.result()
            self._tell_progress()
            assert self._producer is not None
            if self._producer.facts.get("done") and killing.done() and await self._is_drained():
                return
            if second > self._options.day_s + DRAIN_TIMEOUT_S:
                raise DemoFailed("messages were still open long after the end of the day")

    def _tell_progress(self) -> None:
        minute = (now_ms() - self._day_start_ms) / 1000 / self._options.day_s * 1440
        clock = f"{int(minute) // 60:02}:{int(minute) % 60:02}" if minute < 1440 else "evening"
        assert self._producer is not None
        sent = self._producer.facts.get("sent", 0)
        received = sum(child.facts.get("received", 0) for child in self._consumers)
        say(f"{clock:>9}  sent {sent:>7,}  received {received:>7,}  broker {self._broker_state}")

    async def _is_drained(self) -> bool:
        async with AsyncPlainClient(self._broker.url) as client:
            try:
                counts = (await client.stats(TOPIC))["counts"]
            except ClientError:
                return False
        return not any(counts[state] for state in ("waiting", "ready", "leased"))

    async def _finish_children(self) -> None:
        for child in self._consumers:
            child.hang_up()
        if not await children_ended(self._children, timeout_s=10.0):
            raise DemoFailed("a client did not end when it was told to")
        self._check_children()
        for child in self._children:
            if not child.facts.get("done"):
                raise DemoFailed(f"{child.name} ended without its last word")

    def _check_children(self) -> None:
        for child in self._children:
            if child.status not in (None, 0):
                raise DemoFailed(f"{child.name} ended with status {child.status}")

    def facts(self) -> dict[str, Any]:
        """What the producer said last, and the acks that the consumers could not place."""
        assert self._producer is not None
        lost = sum(child.facts.get("acks_lost", 0) for child in self._consumers)
        return {**self._producer.facts, "acks_lost": lost}


def tell(proof: Proof, outage: Outage | None, facts: dict[str, Any]) -> None:
    """The last page: counts, histograms, rules, verdict."""
    say("")
    say(
        f"sent      {proof.sent:,} reminders; {facts['repeated']} tries failed and were repeated,"
        f" {facts['lost_answers']} for a lost answer; {facts['sent_late']:,} were sent too late"
    )
    say(f"received  {proof.received:,} reminders in {proof.deliveries:,} deliveries")
    causes = [
        f"{count:,} {CAUSES.get(cause, cause)}"
        for cause, count in proof.report.duplicates.items()
        if count
    ]
    say(
        f"again     {proof.duplicates:,} of these for a second time"
        f" ({', '.join(causes) or 'none'}); {facts['acks_lost']:,} acks had got no answer"
    )
    if outage is not None:
        down_ms = outage.ready_ms - outage.killed_ms
        behind_ms = max(proof.caught_up_ms - outage.ready_ms, 0.0)
        say(
            f"outage    {milliseconds(down_ms)} from kill -9 to serving again,"
            f" caught up {milliseconds(behind_ms)} later"
        )
    say("")
    say("Lateness: the consumer's receipt less the due time that the broker had answered")
    for line in draw(proof.outside_ms, "outside the outage"):
        say(line)
    if outage is not None:
        for line in draw(proof.during_ms, "during the outage (due, leased or waiting then)"):
            say(line)
    say("")
    say("Proof, from the history that the clients recorded")
    for rule, findings in proof.report.rules.items():
        broken = f"{findings.violations:,} VIOLATIONS" if findings.violations else "holds"
        say(f"  {rule} {findings.checked:>9,} checked  {broken:<8} {RULES[rule]}")
        for example in findings.examples[:3]:
            say(f"      {example.id}: {example.text}")
    say(
        f"  sent {proof.sent:,} = received {proof.received:,}, early {proof.early:,},"
        f" lost {proof.report.fates.lost:,}, from nowhere {proof.strangers:,}"
    )
    say("THE PROOF HOLDS" if proof.holds else "THE PROOF FAILS")


def say(line: str) -> None:
    """One line to the terminal, or to whatever stands in for it."""
    print(line, flush=True)


async def run(options: argparse.Namespace) -> int:
    """Play and prove; the folder stays only when something is to be looked at."""
    folder = Path(tempfile.mkdtemp(prefix="delaylog-demo-"))
    demo = Demo(options, folder)
    begun = time.monotonic()
    status = 1
    try:
        await demo.play()
        proof = prove(folder, demo.outage, lease_ms=LEASE_MS)
        tell(proof, demo.outage, demo.facts())
        status = 0 if proof.holds else 1
    except (DemoFailed, BrokerStartError) as error:
        say(f"THE DEMO FAILED: {error}\n{ChildBroker(folder / 'data').log_tail()}")
    finally:
        if status == 0 and not options.keep:
            shutil.rmtree(folder)
        else:
            say(f"histories and data are in {folder}")
    say(f"{time.monotonic() - begun:.1f} s in all")
    return status


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flights", type=int, help="play only so many of the flights")
    parser.add_argument("--day-s", type=float, default=20.0, help="how long the folded day takes")
    parser.add_argument("--no-kill", action="store_true", help="leave the broker alone")
    parser.add_argument("--keep", action="store_true", help="keep histories and data folder")
    options = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(asyncio.run(run(options)))


if __name__ == "__main__":
    main()
