"""Makes the golden data of a release: run in a checkout of that release, from its top folder.

    PYTHONPATH=.:src python tests/golden/make.py tests/golden/VERSION

Writes folders.tar.xz and seen.json: the folders `clean` (stopped after a checkpoint), `killed` (log
behind the checkpoint, never closed) and what that release itself shows of them; cluster.tar.xz, the
folders of three nodes that were killed; and frames.json, the frames of their logs.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from delaylog.broker.engine.limits import Limits
from delaylog.storage.log import physical_log
from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.broker.engine.host import Host
from tests.golden import scene

LIMITS = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
physical_log.SEGMENT_BYTES_MAX = 16_000  # type: ignore[misc]


def main(out: Path) -> None:
    """Make and write all of it."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        seen = {}
        host = Host(top / "work", limits=LIMITS)
        scene.fill(host, part="first")
        host.checkpoint()
        told = scene.fill(host, part="second")
        shutil.copytree(top / "work", top / "killed")
        host.checkpoint()
        now_ms = host.now_ms
        host.close()
        shutil.move(top / "work", top / "clean")
        for folder in ("clean", "killed"):
            shutil.copytree(top / folder, top / "look" / folder)
            again = Host(top / "look" / folder, now_ms=now_ms, limits=LIMITS)
            seen[folder] = scene.view(again, told)
            again.close()
        with tarfile.open(out / "folders.tar.xz", "w:xz") as archive:
            for folder in ("clean", "killed"):
                archive.add(top / folder, folder)
        frames = {folder: list(scene.shown_log(top / folder)) for folder in ("clean", "killed")}
        (out / "seen.json").write_text(
            json.dumps({"now_ms": now_ms, "told": told, "seen": seen}, indent=1) + "\n"
        )
    with tempfile.TemporaryDirectory() as name:
        frames["n1"] = cluster(Path(name), out)
    (out / "frames.json").write_text(json.dumps(frames, separators=(",", ":")) + "\n")


def cluster(top: Path, out: Path) -> list[list[Any]]:
    """Three processes, some calls, kill -9; returns the frames of the first one's log."""
    nodes = ThreeNodes(top)
    scene.give_addresses(nodes)
    nodes.start(new_cluster=True)
    leader = nodes.leader()
    for k in range(20):
        body = {"body": f"near {k}", "id": f"near-{k}", "tags": ["t"], "key": f"k{k % 3}"}
        assert nodes.call(leader, "POST", "/v1/topics/t/messages", body).status < 300
    for k in range(8):
        body = {"body": f"far {k}", "id": f"far-{k}", "delay_ms": (k + 1) * 365 * 86_400_000}
        assert nodes.call(leader, "POST", "/v1/topics/t/messages", body).status < 300
    asked = {"max": 2, "wait_ms": 5_000}
    got = nodes.call(leader, "POST", "/v1/topics/t/receive", asked).json["messages"]
    receipts = [one["receipt"] for one in got]
    assert nodes.call(leader, "POST", "/v1/topics/t/ack", {"receipts": receipts}).status == 200
    acked = sorted(one["id"] for one in got)
    assert nodes.call(leader, "DELETE", "/v1/topics/t/messages/far-7").status < 300
    nodes.caught_up()
    nodes.clean_up()
    with tarfile.open(out / "cluster.tar.xz", "w:xz") as archive:
        for node in NODES:
            archive.add(nodes.data_dir(node), nodes.data_dir(node).name)
    (out / "cluster.json").write_text(json.dumps({"acked": acked}) + "\n")
    return list(scene.shown_log(nodes.data_dir(NODES[0])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
