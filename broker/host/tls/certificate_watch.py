"""Watches the certificates in use: warns in the log before they end, and has their metrics.

Connections outlive the end of a certificate: TLS checks it in the handshake only. An exception are
clients that prove who they are by a certificate, whose rights end with it. So the end of a
certificate is not noticed until connections are made again, and the warnings matter.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.machine import Machine
from delaylog.broker.host.tls.certificates import Fault
from delaylog.broker.host.watch.metrics_table import by_label

LOOK_SECONDS: Final = 60.0

log = logging.getLogger("delaylog.tls")


class Source(Protocol):
    """Certificates that are in use together."""

    def faults(self) -> list[Fault]:
        """What is wrong with them. Takes milliseconds."""

    def ends(self) -> dict[str, float]:
        """When they end, in seconds since the epoch, by the name of the metric's label."""


class CertificateWatch(Collector):
    """The certificates of one process. All methods belong to the loop's thread."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._sources: list[Source] = []
        self._faults: list[Fault] = []
        """What the last look has found."""
        self._logged: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, source: Source) -> None:
        """Watch the certificates of a source, too."""
        self._sources.append(source)

    def start(self) -> None:
        """Begin to look once a minute."""
        if self._sources:
            self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def look(self) -> None:
        """Log each fault that is new. A certificate that ends soon is a new one at each bound."""
        found = [
            fault
            for source in self._sources
            for fault in await self._machine.in_thread(source.faults)
        ]
        for fault in found:
            if fault.text not in self._logged:
                tell = log.error if fault.severity == "error" else log.warning
                tell("%s: %s", fault.text, fault.advice)
        self._faults, self._logged = found, {fault.text for fault in found}

    async def _keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    # ------------------------------------------------------------------ what is known

    def facts(self) -> dict[str, Any]:
        """The faults as fields of the node's status."""
        found = [
            {"severity": each.severity, "text": each.text, "advice": each.advice}
            for each in self._faults
        ]
        return {"certificate_faults": found}

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        ends = {source: at for each in self._sources for source, at in each.ends().items()}
        yield by_label("delaylog_certificate_expires_timestamp_seconds", ends)
        counts = Counter(each.severity for each in self._faults)
        severities = {severity: counts[severity] for severity in ("warning", "error")}
        yield by_label("delaylog_certificate_faults", severities)
