"""One node of an election: the oracle alone, without a broker around it.

    python election_node.py raftos|pysyncobj FOLDER NODE LOOK_MS HOST:PORT …

It prints `loaded`, waits for a line on standard input, starts the oracle and prints a JSON line
each time its state changes: `at` is CLOCK_MONOTONIC, which all processes of a machine share.
It looks every LOOK_MS. The end of standard input ends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from typing import Any, Final

CLUSTER_ID: Final = bytes(range(16))
# No secret at all, but a node accepts nothing shorter.
SECRET: Final = hashlib.sha256(b"delaylog bench").digest()


def make_oracle(kind: str, folder: str, node: int, addresses: list[str]) -> Any:
    """The oracle under test, with the timing that the broker gives it."""
    members = {}
    for index, address in enumerate(addresses):
        host, _, port = address.rpartition(":")
        members[index] = host, int(port)
    if kind == "pysyncobj":
        from pysyncobj_oracle import PySyncObjOracle

        return PySyncObjOracle(folder, node, members, SECRET)
    from delaylog.replication.raftos_oracle import OracleSettings, RaftosOracle
    from delaylog.storage.files.os_file_system import OsFileSystem

    settings = OracleSettings(cluster_id=CLUSTER_ID, secrets=lambda: (SECRET,))
    return RaftosOracle(OsFileSystem(), folder, node, members, settings)


async def run(oracle: Any, look_s: float) -> None:
    """Take part and tell, until standard input ends."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await oracle.start()
    said: tuple[bool, int | None] | None = None
    while not ended.is_set():
        now_ms = int(time.monotonic() * 1000)
        seen = oracle.suggests(now_ms), oracle.leader(now_ms)
        if seen != said:
            said = seen
            line = {"at": time.monotonic(), "leads": seen[0], "leader": seen[1]}
            print(json.dumps(line), flush=True)
        await asyncio.sleep(look_s)
    await oracle.stop()


def main() -> None:
    """See the top of the file."""
    kind, folder, node, look_ms, *addresses = sys.argv[1:]
    oracle = make_oracle(kind, folder, int(node), addresses)
    try:
        import uvloop
    except ImportError:
        runner = asyncio.run
    else:
        runner = uvloop.run
    print("loaded", flush=True)
    if sys.stdin.readline():
        runner(run(oracle, int(look_ms) / 1000))


if __name__ == "__main__":
    main()
