"""Three nodes, each with configured files of its own, which are exchanged under load."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from tests.broker.cluster.three_nodes import NODES, ThreeNodes


class OwnFiles(ThreeNodes):
    """The cluster file of each node is in `place`, and names the files beside it."""

    def __init__(self, folder: Path, more: str = "") -> None:
        """`more` is added to the cluster files."""
        super().__init__(folder)
        text = self.config.read_text() + more
        secret = (folder / "cluster.secret").read_bytes()
        for node in NODES:
            self.place(node).mkdir()
            self.configs[node] = self.place(node) / "cluster.toml"
            self.configs[node].write_text(text)
            copy = self.place(node) / "cluster.secret"
            copy.touch(mode=0o600)
            copy.write_bytes(secret)

    def place(self, node: int) -> Path:
        """The folder of a node's files."""
        return self.folder / f"files{node}"

    def metric(self, node: int, name: str) -> float:
        """The sum of a node's samples that begin with `name`."""
        lines = self.call(node, "GET", "/metrics").body.decode().splitlines()
        found = [float(line.split()[-1]) for line in lines if line.startswith(name)]
        assert found, f"node {node} has no {name}"
        return sum(found)

    def restart(self, node: int) -> None:
        """The node connects again, with the files as they are now."""
        self.stop(node)
        self.start(node)
        self.caught_up()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """While the block runs the leader answers every send, and nobody else is elected."""
        # A new cluster begins a second epoch, to put its members into the log.
        self.until(lambda: self.status(self.leader()).get("version"))
        leader, ended = self.leader(), Event()
        epoch = self.status(leader)["epoch"]
        path, body = f"/v1/topics/{self.fresh('t')}", {"body": "x", "delay_ms": 3_600_000}

        def send() -> int:
            sent = 0
            while not ended.is_set():
                assert self.call(leader, "POST", f"{path}/messages", body).status == 200
                sent += 1
            return sent

        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(send)
            try:
                yield
            finally:
                ended.set()
            sent = load.result()
        assert self.status(leader)["epoch"] == epoch, "nobody else was elected"
        assert sent > 20
        assert self.call(leader, "GET", path).json["counts"]["waiting"] == sent
