"""A broker of this checkout as a process of its own, looked at over its HTTP API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests

PAGE = 1_000


class RealBroker:
    """Use as `with RealBroker(folder) as broker:`; it may be killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._place = "127.0.0.1:0"
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """At the same place as before."""
        data = str(self._folder / "data")
        command = [sys.executable, "-P", "-m", "delaylog.broker", "serve", "--data-dir", data]
        with (self._folder / "broker.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--http", self._place, *self._options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words[:1] == ["ready"], (self._folder / "broker.log").read_text()
        self._place = words[1].removeprefix("http=")
        self.url = f"http://{self._place}"

    def kill(self) -> None:
        """As a crash does: nothing is flushed."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def get(self, path: str, **query: str | int) -> Any:
        answer = requests.get(self.url + path, params=query, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def ids(self, topic: str) -> list[str]:
        """Of all messages that are there, page by page."""
        found, cursor = [], None
        while True:
            query: dict[str, str | int] = {"limit": PAGE, **({"cursor": cursor} if cursor else {})}
            page = self.get(f"/v1/topics/{topic}/messages", **query)
            found += [message["id"] for message in page["messages"]]
            cursor = page["cursor"]
            if cursor is None:
                return found

    def counts(self, topic: str) -> dict[str, int]:
        counts = self.get(f"/v1/topics/{topic}/stats", delay_buckets="false")["counts"]
        return {str(state): int(count) for state, count in counts.items() if count}

    def transaction(self, identity: str) -> dict[str, Any]:
        found = self.get(f"/v1/transactions/{identity}")
        assert isinstance(found, dict)
        return found
