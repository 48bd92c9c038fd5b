"""One broker of a simulation: the node and the HTTP face of the product, on a simulated machine.

`Broker` is the folder and its machine, which outlive processes. `start` begins a process, which
lives until it stops or dies; `restart_after` says what its disk has kept. Whoever wants to change
the machine (clock, disk) does it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from traceback import format_exception
from typing import Final

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.watch.audit_files import FOLDER as AUDIT
from delaylog.broker.host.watch.audit_files import AuditSettings
from delaylog.broker.host.watch.audit_log import AuditLog
from delaylog.broker.host.watch.metrics import Metrics
from delaylog.broker.verify import Finding, Report, verify_folder
from delaylog.broker.web.app import HttpFace
from delaylog.broker.web.mounts import Mounts
from delaylog.broker.web.request_heads import RequestChecks
from delaylog.storage.errors import DiskFailedError, DiskFullError
from tests.simulation.disk import SimDisk
from tests.simulation.loop import Process, SimLoop
from tests.simulation.machine import Clocks, SimMachine, Speed
from tests.storage.fake_disk import DiskCrashed, Survival

FOLDER: Final = "/data"


@dataclass(frozen=True)
class BrokerOptions:
    """What does not change while a run lasts."""

    limits: Limits
    open_hours_max: int
    fsync: str
    audit: str
    archive_hold: bool
    speed: Speed


def damages(disk: SimDisk) -> list[Finding]:
    """What verify finds in the folder."""
    if not disk.exists(FOLDER):
        return []
    report = Report()
    for _ in verify_folder(disk, FOLDER, report):
        pass
    return report.damage


class Broker:
    """One data folder."""

    def __init__(
        self,
        loop: SimLoop,
        options: BrokerOptions,
        seed: str,
        *,
        note: Callable[[str], None],
        violated: Callable[[str, str], None],
    ) -> None:
        self._loop, self.options, self._seed = loop, options, seed
        self._note, self._violated = note, violated
        self.disk = SimDisk(0)
        self.clocks = Clocks()
        self.process: Process | None = None
        self.node: ServingNode | None = None
        """From the moment at which a process serves to its end."""
        self.starting = self.stopping = False
        self.starts = 0
        self.why_ended = ""
        self._face: HttpFace | None = None
        self._audit: AuditLog | None = None
        self.changed = asyncio.Event()
        """Set when a process serves, stops or dies."""
        self.made_disk: Callable[[SimDisk], None] = lambda disk: None
        """Called with each new disk, to observe it."""

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin a process."""
        self.starts += 1
        self.process = process = Process(f"broker-{self.starts}")
        process.on_death = self._dead
        self.disk.on_crash = process.die
        self.starting, self.why_ended = True, ""
        self._note(f"process {self.starts} starts")
        self._loop.create_task(self._start(process), context=process.context)

    async def _start(self, process: Process) -> None:
        options = self.options
        try:
            machine = SimMachine(
                self._loop, self.clocks, options.speed, f"{self._seed}/machine/{self.starts}"
            )
            self.disk.spend = machine.at_operation
            clock = BrokerClock(wall=machine.wall_s, monotonic=machine.steady_s)
            setup = Setup(
                random=machine.random(),
                limits=options.limits,
                open_hours_max=options.open_hours_max,
                archive_hold=options.archive_hold,
            )
            engine = Engine(self.disk, FOLDER, setup, now_ms=clock.now_ms())
            node = ServingNode(engine, clock, self._fatal, fsync=options.fsync, machine=machine)
            clock.hold_from(engine.started_ms)
            clock.on_jump = node.clock_jumped
            settings = AuditSettings(options.audit)
            audit = AuditLog(
                self.disk, f"{FOLDER}/{AUDIT}", 0, settings, machine, node.space.make_room
            )
            checks = RequestChecks(["localhost"], ())
            face = HttpFace(node, Metrics(node), Mounts(), checks, audit)
            audit.start()
            node.start()
            await face.start("127.0.0.1", 8711)
        except BaseException as error:
            self._fatal(error)
            return
        if not process.is_dead:
            self.node, self._face, self._audit = node, face, audit
            self.starting = False
            self._note(f"process {self.starts} serves")
            self.changed.set()

    def _fatal(self, error: BaseException) -> None:
        """As the process does: it ends after some steps, with whatever it has written."""
        process = self.process
        if process is None or process.is_dead or isinstance(error, DiskCrashed) or self.why_ended:
            return
        if isinstance(error, DiskFailedError) or (
            isinstance(error, DiskFullError) and self.starting
        ):
            self.why_ended = f"the disk: {type(error).__name__}"
        elif not isinstance(error, asyncio.CancelledError):
            self.why_ended = f"a failure: {error!r}"
            self._violated("ended", "".join(format_exception(error)))
        self._loop.call_later(0.001, process.die)

    async def stop(self) -> None:
        """A clean end, as an operator asks for it; what runs it is the process."""
        process, node, face, audit = self.process, self.node, self._face, self._audit
        if process is None or node is None or face is None or audit is None or self.stopping:
            return
        self.stopping = True

        async def stop() -> None:
            try:
                await face.close_listener()
                node.waiters.close()
                await face.stop()
                await node.stop()
                await audit.stop()
            except BaseException as error:
                self._fatal(error)
            if not process.is_dead:
                self.why_ended = "stopped"
                process.die()

        self._loop.create_task(stop(), context=process.context)
        while not process.is_dead:
            self.changed.clear()
            await self.changed.wait()

    def kill(self, why: str) -> None:
        """End the process now."""
        process = self.process
        if process is not None and not process.is_dead:
            self.why_ended = why
            process.die()

    def _dead(self) -> None:
        assert self.process is not None
        self.why_ended = self.why_ended or "the disk crashed"
        self.disk.crashed = True
        self.disk.on_crash = lambda: None
        self.starting = self.stopping = False
        self._loop.servers.pop(self.process, None)
        self._note(f"process {self.starts} is dead: {self.why_ended}")
        self.changed.set()

    def restart_after(self, survival: Survival, seed: int) -> None:
        """The machine is there again, with what the disk has kept."""
        assert self.process is not None
        self.process.bury()
        self.node = self._face = self._audit = None
        self.disk = SimDisk.after(self.disk, survival, seed)
        self.made_disk(self.disk)

    # ------------------------------------------------------------------ looking

    @property
    def serves(self) -> bool:
        """Whether a process answers calls."""
        process = self.process
        return self.node is not None and process is not None and not process.is_dead

    def verify(self) -> list[Finding]:
        """The damages of the folder, which no process serves."""
        return damages(self.disk)

    def ahead_ms(self) -> int:
        """How far the broker's clock is ahead of its machine's."""
        return 0 if self.node is None else self.node.clock.ahead_ms
