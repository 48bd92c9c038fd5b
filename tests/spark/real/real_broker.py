"""A broker of this checkout as a process of its own, looked at over its HTTP API."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Self

import requests

from tests.broker.conftest import Broker

PAGE = 1_000
TRIES = 300


class BrokerView:
    """What a broker holds, as anybody may ask it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str | int) -> Any:
        for _ in range(TRIES):
            answer = requests.get(self.url + path, params=query, timeout=30)
            if answer.status_code != 503:
                break
            # A leader without a majority for a moment, as on a machine that is busy.
            time.sleep(0.1)
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

    def sent(self, topic: str, transaction: str | None) -> int:
        """How many rows of a load are there, staged or of its topic; none before it has begun."""
        try:
            if transaction is not None:
                return int(self.transaction(transaction)["rows"])
            return sum(self.counts(topic).values())
        except requests.exceptions.RequestException:
            return 0

    def settled(self, identity: str) -> dict[str, Any]:
        """A committed transaction, once all of it is published."""
        for _ in range(600):
            found = self.transaction(identity)
            if found["state"] != "committed" or found["published"] == found["rows"]:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{identity} is not published: {found}")

    def assert_holds(self, ids: list[str], topic: str = "t") -> None:
        """These and no others, each once; `ids` are in order."""
        assert sorted(self.ids(topic)) == ids
        assert sum(self.counts(topic).values()) == len(ids)


class RealBroker(BrokerView):
    """Use as `with RealBroker(folder) as broker:`; it may be killed and started again."""

    def __init__(self, folder: Path, *options: str, **how: Any) -> None:
        super().__init__("")
        self._broker = Broker(folder, *options, **how)
        self.data_dir = self._broker.data_dir

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._broker.kill()

    def start(self) -> None:
        """At the same place as before."""
        self._broker.start()
        self.url = self._broker.url

    def stop(self) -> None:
        """By SIGTERM: a last checkpoint has all that it knows."""
        assert self._broker.stop() == 0

    def kill(self) -> None:
        """As a crash does: nothing is flushed."""
        self._broker.crash()
