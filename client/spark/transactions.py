"""The broker's transactions, as a sink uses them: begin by name, stage, commit, abort.

The one rule: a name is used up only by a commit. A load that failed has aborted its transaction,
and a dead one's has expired; run again under the same name, it goes on as `NAME.r1`, `NAME.r2`, …
So whatever happens, a name brings its rows in once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_delaylog.broker_http import ARROW_TYPE, BrokerHttp
from pyspark_delaylog.errors import RefusedError, TransactionError
from pyspark_delaylog.options import Options
from pyspark_delaylog.tasks import Task

RUNS_MAX: Final = 100
"""So often a load may fail under one name; then somebody should look."""
OPEN: Final = "open"
COMMITTED: Final = "committed"
ROOT: Final = "/v1/transactions"

log = logging.getLogger("pyspark_delaylog")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One as it was found or begun: open, or committed by an earlier run."""

    id: str
    state: str


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    transaction: str
    state: str
    producer: str = ""
    part: int = 0
    attempt: int = 0
    rows: int = 0
    size: int = 0
    rejected: int = 0
    repeats: int = 0


class CommittedElsewhere(Exception):
    """Another run of the same load has committed meanwhile: nothing is left to send."""


class Transactions:
    """Calls about transactions."""

    def __init__(self, options: Options, http: BrokerHttp) -> None:
        self._http = http
        self._namespace = options.namespace
        self._ttl_ms = options.txn_ttl_ms

    def begin(self, name: str) -> Transaction:
        """The open transaction of this name, or the committed one that makes it needless."""
        for identity in _runs_of(name):
            state = self._begun(identity)
            if state in (OPEN, COMMITTED):
                return Transaction(identity, state)
        raise TransactionError(
            f"{RUNS_MAX} transactions by the name {name} were aborted or expired; see why this "
            "load fails, then give another txnAppId"
        )

    def committed_rows(self, name: str) -> int | None:
        """How many rows a load of this name has brought in; None if none was committed."""
        for identity in _runs_of(name):
            try:
                found = self._http.json("GET", f"{ROOT}/{identity}")
            except RefusedError as error:
                if error.status == 404:
                    return None
                raise
            if found["state"] == COMMITTED:
                return int(found["rows"])
            if found["state"] == OPEN:
                return None
        return None

    def _begun(self, identity: str) -> str:
        shape = {"transaction": identity, "ttl_ms": self._ttl_ms}
        try:
            return str(self._http.json("POST", ROOT, shape).get("state"))
        except RefusedError as error:
            if error.status == 404:
                raise TransactionError(
                    "this broker knows no transactions; run a newer one, or give the option "
                    "delivery=direct"
                ) from error
            raise

    def stage(
        self, identity: str, topic: str, producer: str, task: Task, number: int, body: bytes
    ) -> None:
        """One chunk. Raises CommittedElsewhere, or TransactionError when it has ended otherwise."""
        query: dict[str, str | int] = {
            "topic": topic,
            "producer": producer,
            "part": task.part,
            "attempt": task.attempt,
            "number": number,
        }
        if self._namespace != "default":
            query["ns"] = self._namespace
        try:
            self._http.send("POST", f"{ROOT}/{identity}/parts", body, ARROW_TYPE, query)
        except RefusedError as error:
            if error.status == 410 and error.state == COMMITTED:
                raise CommittedElsewhere from error
            if error.status in (404, 410):
                raise TransactionError(
                    f"transaction {identity} has ended ({error.state or error.code}) before this "
                    "task was done; run the load again (option txnTtlMs says how long one stays "
                    "open)"
                ) from error
            raise

    def commit(self, identity: str, messages: Iterable[Staged]) -> dict[str, Any]:
        """Make the rows of these attempts visible, all at once."""
        winners = [
            {
                "producer": each.producer,
                "part": each.part,
                "attempt": each.attempt,
                "rows": each.rows,
            }
            for each in messages
            if each.rows
        ]
        try:
            return self._http.json("POST", f"{ROOT}/{identity}/commit", {"winners": winners})
        except RefusedError as error:
            if error.status in (404, 409, 410):
                raise TransactionError(
                    f"transaction {identity} cannot be committed: {error.detail} "
                    f"({error.state or error.code}); nothing of it is visible, run the load again"
                ) from error
            raise

    def abort(self, identity: str) -> None:
        """Give up what is staged. What was committed stays."""
        try:
            self._http.json("POST", f"{ROOT}/{identity}/abort", {})
        except RefusedError as error:
            if error.status == 409:
                log.warning("transaction %s was committed before its abort; it stays", identity)
            elif error.status not in (404, 410):
                raise


def _runs_of(name: str) -> Iterator[str]:
    """What the transactions of a load are called, one after another."""
    yield name
    for run in range(1, RUNS_MAX):
        yield f"{name}.r{run}"
