"""Certificates of a minute, for clients and between nodes, which are renewed while nodes run.

Each round waits until the certificates before the renewal have ended. Then nothing may depend on
them: clients and a restarted node connect with the new ones. An expired certificate is refused, at
a start and when files are read again, and the nodes say how long their own ones last.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.rounds import Stage
from delaylog.broker.drills.trio import LOOPBACK, NODES, Trio
from delaylog.broker.host.system.private_files import replace_file
from delaylog.client.child_broker import delaylog_program, free_port

LASTS_S: Final = 60
RENEW_EVERY_S: Final = 20.0
TAKEN_UP_S: Final = 15.0
"""By then every node uses the new files."""
COMMAND_S: Final = 30.0
METRIC: Final = "delaylog_certificate_expires_timestamp_seconds"
SOURCES: Final = ("server", "node")
_TABLE: Final = '[tls]\nca = "nodes-ca.pem"\ncert = "node.pem"\nkey = "node.pem"\n'
BEGAN_BEFORE: Final = timedelta(days=2)
"""How long before its end a certificate begins: so the end of each one is near, and worth a
warning.
"""


def need_certificates() -> None:
    """Raise DrillError if the library that makes certificates is not installed."""
    if importlib.util.find_spec("cryptography") is None:
        raise DrillError(
            "The drill `certificates` makes certificates with the package cryptography: "
            "pip install 'delaylog[tls]'"
        )


class CertifiedTrio(Trio):
    """Nodes that serve HTTPS and use TLS between each other. They share the files of each kind."""

    def __init__(self, folder: Path) -> None:
        from delaylog.broker.host.tls.authority import Authority

        self.end_s = 0
        """When the newest certificates end, in seconds since the epoch."""
        begin = datetime.now(UTC) - BEGAN_BEFORE
        end = begin + 2 * BEGAN_BEFORE
        self._for_clients = Authority.create("clients", begin, end)
        self._for_nodes = Authority.create("nodes", begin, end)
        (folder / "clients-ca.pem").write_bytes(self._for_clients.pem)
        (folder / "nodes-ca.pem").write_bytes(self._for_nodes.pem)
        self.renew(folder)
        super().__init__(
            folder,
            tls=ssl.create_default_context(cadata=self._for_clients.pem.decode()),
            tables=_TABLE,
            options=(
                *("--tls-cert", str(folder / "broker.pem")),
                *("--tls-ca", str(folder / "clients-ca.pem")),
            ),
        )

    def renew(self, folder: Path) -> None:
        """Replace the certificates by new ones."""
        self.end_s = int(time.time()) + LASTS_S
        self.put(folder, self.end_s)

    def put(self, folder: Path, end_s: int, prefix: str = "") -> None:
        """Write certificates that end at `end_s`, of the nodes and of the brokers."""
        end = datetime.fromtimestamp(end_s, UTC)
        for name, authority in (("broker", self._for_clients), ("node", self._for_nodes)):
            pair = authority.issue("drill", [LOOPBACK], end - BEGAN_BEFORE, end, node=True)
            replace_file(folder / f"{prefix}{name}.pem", b"".join(pair), 0o600)


async def certificates(stage: Stage) -> None:
    """Renew all certificates, wait for the end of the old ones, and restart a follower."""
    trio = stage.trio
    assert isinstance(trio, CertifiedTrio)
    leader, followers = await trio.others()
    before_s = trio.end_s
    number = len(stage.rounds) + 1

    def tell(wrong: list[str]) -> None:
        stage.broken += [f"round {number}: {text}" for text in wrong]

    async with stage.undisturbed("", leader) as one:
        trio.renew(trio.folder)
        tell(await _stated_ends(trio))
        while (left_s := before_s + 1 - time.time()) > 0:
            await asyncio.sleep(min(left_s, RENEW_EVERY_S))
            trio.renew(trio.folder)
        follower = stage.random.choice(followers)
        await trio.nodes[follower].stop()
        trio.renew(trio.folder)
        await trio.start(follower)
        await stage.all_back(one)
        tell(await _refused_reload(trio))
        tell(await _refused_starts(trio))
    if one.strike.disturbs:
        tell(["the leader changed"])


async def _stated_ends(trio: CertifiedTrio) -> list[str]:
    """A text for each node whose metric, or the doctor, does not state the end of the new ones."""
    wanted = {f'{METRIC}{{source="{source}"}}': trio.end_s for source in SOURCES}
    deadline = time.monotonic() + TAKEN_UP_S
    wrong: list[str] = []
    while time.monotonic() < deadline:
        wrong = []
        for node in NODES:
            _, text = await trio.get(node, "/metrics")
            values = dict(line.rsplit(" ", 1) for line in text.splitlines() if METRIC in line)
            wrong += [
                f"node {node}: {name} is {values.get(name, 'missing')}, not {end_s}, "
                f"{TAKEN_UP_S:.0f} s after the renewal"
                for name, end_s in wanted.items()
                if int(float(values.get(name, 0))) != end_s
            ]
        if not wrong:
            break
        await asyncio.sleep(0.5)
    url = trio.urls[NODES[0]]
    _, said = await _run(trio, "cluster", "doctor", "--json", "--url", url)
    wrong += _silent_doctor(said)
    return wrong


def _silent_doctor(said: str) -> list[str]:
    try:
        checks = json.loads(said)["checks"]
    except (ValueError, KeyError):
        return [f"cluster doctor printed no checks: {said[:300]}"]
    if any(each["check"] == "certificates" and "expires" in each["text"] for each in checks):
        return []
    return ["cluster doctor does not say when the certificates expire"]


async def _refused_reload(trio: CertifiedTrio) -> list[str]:
    """A text for each node that takes expired certificates when it reads its files again."""
    wrong = []
    trio.put(trio.folder, int(time.time()) - 10)
    for node in NODES:
        status, text = await trio.post(node, "/v1/reload")
        if status == 200 or "expired" not in text:
            wrong.append(f"node {node} read expired certificates: {status} {text[:200].strip()}")
    trio.renew(trio.folder)
    for node in NODES:
        status, text = await trio.post(node, "/v1/reload")
        if status != 200:
            wrong.append(f"node {node} refused good certificates: {status} {text[:200].strip()}")
    return wrong


async def _refused_starts(trio: CertifiedTrio) -> list[str]:
    """A text for each kind of expired certificate with which `serve` starts."""
    folder = trio.folder
    trio.put(folder, int(time.time()) - 10, "expired-")
    cluster = (folder / "cluster.toml").read_text().replace('"node.pem"', '"expired-node.pem"')
    (folder / "expired.toml").write_text(cluster)
    of_node = ("--cluster", str(folder / "expired.toml"), "--node", str(NODES[-1]))
    wrong = []
    for what, cert, more in (
        ("server", "expired-broker.pem", ()),
        ("node", "broker.pem", of_node),
    ):
        status, said = await _run(
            trio,
            *("serve", "--data-dir", str(folder / f"expired-{what}")),
            *("--http", f"{LOOPBACK}:{free_port()}", "--tls-cert", str(folder / cert), *more),
        )
        if not status or "expired" not in said:
            wrong.append(f"serve took an expired {what} certificate: {said[-200:].strip()}")
    return wrong


async def _run(trio: CertifiedTrio, *words: str) -> tuple[int | None, str]:
    """Run `delaylog`; return its status, None if it did not end, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(*delaylog_program(), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "DELAYLOG_CA_FILE": str(trio.folder / "clients-ca.pem")},
    )
    assert process.stdout is not None
    status: int | None = None
    try:
        async with asyncio.timeout(COMMAND_S):
            said = await process.stdout.read()
            status = await process.wait()
    except TimeoutError:
        said = b"it did not end"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return status, said.decode(errors="replace")
