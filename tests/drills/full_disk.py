"""A disk without a byte left: a broker on a small tmpfs, and another program that takes the rest.

    python tests/drills/full_disk.py [--size-mib 48] [--seed S] [--on FOLDER] [--keep]

Sends fill the disk until they are refused; then a filler takes the very last byte. In that state
everything that was accepted comes due, is delivered, acknowledged, cancelled, rescheduled, and the
broker is killed with SIGKILL and started again. Then the filler goes: sends have to be accepted
again soon. The history is judged by the checker and the folder by `delaylog verify`. Exit status 0
means that all of it held. `--on` takes a small file system that is mounted already.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from drill import Drill, open_messages, parser_of, run_drill
from recorded_calls import EXPECTED_CODES, Known, RecordedCalls, now_ms
from small_mount import free_bytes, mount, own_mounts, take_every_byte, unmount

from delaylog.broker.history import HistoryRecorder
from delaylog.client import AsyncPlainClient
from delaylog.client.child_broker import ChildBroker

TOPIC = "t"
HOUR_MS = 3_600_000
BODY_BYTES = 1_000
BATCH = 100
DUE_MS_RANGE = (0, 4_000)
FAR_SHARE = 0.1
"""Messages of the coming hours: they are cancelled or brought near while the disk is full."""
LEASE_MS = 20_000
KILL_AFTER = 0.3
"""The kill comes when this share of what was accepted has been acknowledged."""
RETAKE_S = 0.5
"""How often the other program takes what has become free meanwhile."""
FILL_TIMEOUT_S = 120.0
DRAIN_TIMEOUT_S = 90.0
"""Some thousand calls on a machine that does much else besides, and the end of a lease."""
RETURN_TIMEOUT_S = 10.0
REFUSALS_TRIED = 10
STARTED = '"message":"replayed '
"""The first line of a process: it may need the reserve before it serves."""
FROM_RESERVE = "everything else uses the reserve"


class FullDisk(Drill):
    """One run on a small file system, which is mounted at `disk` unless it is there."""

    rules = "ABCDEJ"
    lease_ms = LEASE_MS

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        self._disk = options.on or folder / "disk"
        if options.on is None:
            mount(self._disk, options.size_mib)
        self._data = self._disk / "data"
        self._filler = self._disk / "filler"
        # Small enough for the disk; the reserve file's size is the broker's own choice.
        reserve = (free_bytes(self._disk) // 6) >> 20
        config = folder / "delaylog.toml"
        config.write_text(f"[limits]\ndisk_reserve_bytes = {reserve << 20}\n")
        self._config = config
        self._recorder = HistoryRecorder(self.history, client="full-disk")
        self._far: list[Known] = []
        self._made = 0
        self._accepted = 0
        self._acked = 0
        self._retake_at = 0.0
        self.notes: list[str] = []

    async def run(self) -> None:
        """Fill, take the rest, drain, kill, drain, free, send again."""
        with self._recorder:
            async with self._broker() as broker, AsyncPlainClient(broker.url) as client:
                await self._fill(self._calls(client))
                taken, left = take_every_byte(self._filler)
                self.notes.append(f"{self._accepted:,} accepted, then {taken:,} bytes taken")
                self._expect(left == 0, f"the filler left {left:,} bytes")
                await self._drain(broker, client, int(self._accepted * KILL_AFTER))
                killed_ms = now_ms()
                await broker.kill()
                self._recorder.mark("kill", killed_ms, until=now_ms())
            taken, _ = take_every_byte(self._filler)
            async with self._broker() as broker, AsyncPlainClient(broker.url) as client:
                self.notes.append(f"{taken:,} more taken, started in {broker.started_in_s:.2f} s")
                await self._drain(broker, client, None)
                await self._expect_refusal(client)
                self._filler.unlink()
                await self._send_again(client)
                await self._drain(broker, client, None)
                await self._expect_reserve(broker)
                self._recorder.mark("end", now_ms())
                status = await broker.stop()
                self._expect(status == 0, f"SIGTERM ended it with status {status}")
        command = [Path(sys.executable).parent / "delaylog", "verify", self._data]
        verified = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, timeout=60
        )
        self.notes.append(verified.stdout.strip().splitlines()[-1])
        self._expect(verified.returncode == 0, f"verify: {verified.stdout}{verified.stderr}")

    def _broker(self) -> ChildBroker:
        # Its log would stand beside its folder, on the full disk.
        broker = ChildBroker(self._data, options=("--config", str(self._config)))
        broker.log_path = self.history.with_name("broker.log")
        return broker

    def _calls(self, client: AsyncPlainClient) -> RecordedCalls:
        expected = EXPECTED_CODES | {"disk_full"}
        return RecordedCalls(client, self._recorder, self.wrong, self.counts, expected)

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.wrong.append(fault)

    # The steps

    async def _fill(self, calls: RecordedCalls) -> None:
        """Sends until they are refused for good."""
        deadline = time.monotonic() + FILL_TIMEOUT_S
        refusals = 0
        while refusals < 3 and time.monotonic() < deadline:
            refusals = 0 if await self._send(calls) else refusals + 1
        self._expect(self.counts["send disk_full"] > 0, "sends were never refused")
        self._expect(self._accepted > 1_000, f"only {self._accepted} messages fit")

    async def _send(self, calls: RecordedCalls) -> bool:
        random = self.random
        bodies, dues_ms, far = [], [], []
        for row in range(BATCH):
            self._made += 1
            bodies.append(f"{self._made}-".encode() + random.randbytes(BODY_BYTES))
            due_ms = now_ms() + random.randint(*DUE_MS_RANGE)
            if random.random() < FAR_SHARE:
                due_ms += random.randint(1, 3) * HOUR_MS
                far.append(row)
            dues_ms.append(due_ms)
        ids = [f"m{self._made}-{row}" for row in range(BATCH)]
        sent = await calls.send_bulk(TOPIC, bodies, dues_ms, ids)
        self._accepted += len(sent)
        if sent:
            self._far += [sent[row] for row in far]
        return bool(sent)

    async def _drain(self, broker: ChildBroker, client: AsyncPlainClient, upto: int | None) -> None:
        """Receive and ack, cancel and bring near, until `upto` acks or until nothing is open."""
        calls = self._calls(client)
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while upto is None or self._acked < upto:
            if time.monotonic() > deadline:
                stats = await client.stats(TOPIC)
                self.wrong.append(f"still open after {DRAIN_TIMEOUT_S:.0f} s: {stats['counts']}")
                break
            if not broker.running:
                self.wrong.append(f"the broker ended by itself\n{broker.log_tail()}")
                break
            if self._filler.exists() and time.monotonic() > self._retake_at:
                self._retake_at = time.monotonic() + RETAKE_S
                take_every_byte(self._filler)
            lease, leased = await calls.receive_bulk(TOPIC, 200, 100, LEASE_MS)
            back = leased[:5] if self.random.random() < 0.1 else []
            if back:
                await calls.settle("nack", back, delay_ms=200)
                await calls.settle("ack", leased[5:])
            else:
                await calls.ack_lease(lease, leased)
            self._acked += len(leased) - len(back)
            await self._change_far(calls)
            if not leased and upto is None and not self._far:
                counts = (await client.stats(TOPIC))["counts"]
                if not open_messages(counts):
                    break

    async def _change_far(self, calls: RecordedCalls) -> None:
        some, self._far = self._far[:20], self._far[20:]
        if some:
            ids = [each.id for each in some]
            await calls.change_bulk(TOPIC, ids[:5], None)
            if ids[5:]:
                await calls.change_bulk(TOPIC, ids[5:], now_ms() + 500)

    async def _expect_refusal(self, client: AsyncPlainClient) -> None:
        calls = self._calls(client)
        refused = self.counts["send disk_full"]
        for _ in range(REFUSALS_TRIED):
            take_every_byte(self._filler)
            # Old log that went may have made room for a moment: the broker looks twice a second.
            await asyncio.sleep(1)
            await calls.send(TOPIC, b"one more", now_ms() + 1_000, None)
            if self.counts["send disk_full"] > refused:
                return
        self._expect(False, "each send found room on a full disk")

    async def _send_again(self, client: AsyncPlainClient) -> None:
        calls = self._calls(client)
        freed = time.monotonic()
        while not await self._send(calls):
            if time.monotonic() - freed > RETURN_TIMEOUT_S:
                self.wrong.append("sends are still refused although there is space")
                return
            await asyncio.sleep(0.05)
        self.notes.append(f"sends accepted {time.monotonic() - freed:.2f} s after space came back")

    async def _expect_reserve(self, broker: ChildBroker) -> None:
        """Both processes had to use it, and it stands again soon."""
        deadline = time.monotonic() + RETURN_TIMEOUT_S
        while True:
            size, target = [
                await _metric(broker, f"delaylog_reserve_{name}")
                for name in ("bytes", "target_bytes")
            ]
            if size == target or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
        self.notes.append(f"reserve {size:,} of {target:,} bytes")
        self._expect(target > 0, "there is no reserve")
        self._expect(size == target, f"the reserve has {size} of {target} bytes")
        before, _, after = broker.log_path.read_text().partition(STARTED)[2].partition(STARTED)
        self._expect(FROM_RESERVE in before, "the reserve was not needed before the kill")
        self._expect(FROM_RESERVE in after, "the reserve was not needed after the kill")

    def figures(self) -> Sequence[str]:
        """What each step found."""
        return self.notes

    def pace(self, took_s: float) -> str:
        """For the page's last line."""
        return f"{self._accepted:,} messages"

    def release(self, *, keep: bool) -> None:
        """Unmount the disk; `keep` copies what is on it."""
        if self.options.on is not None:
            return
        if keep:
            self._filler.unlink(missing_ok=True)
            shutil.copytree(self._disk, self.folder / "kept", dirs_exist_ok=True)
        unmount(self._disk)


async def _metric(broker: ChildBroker, name: str) -> int:
    def read() -> str:
        with urllib.request.urlopen(f"{broker.url}/metrics", timeout=10) as page:
            return str(page.read().decode())

    text = await asyncio.to_thread(read)
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return int(float(line.split()[1]))


def main() -> None:
    """Parse, mount, run."""
    parser = parser_of(__doc__)
    parser.add_argument("--size-mib", type=int, default=48)
    parser.add_argument("--on", type=Path, help="a small file system that is mounted already")
    options = parser.parse_args()
    if options.on is None:
        own_mounts()
    sys.exit(0 if run_drill("full-disk", lambda folder: FullDisk(folder, options), options) else 1)


if __name__ == "__main__":
    main()
