"""The broker's transactions, as sinks use them: begin by name, stage, commit, abort.

Only a commit uses up a name. The transaction of a failed load is aborted, or it expires; repeated
under the same name, the load continues as `NAME.r1`, `NAME.r2`, … So each name adds its rows at
most once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_delaylog.broker_http import ARROW_TYPE, BrokerHttp
from pyspark_delaylog.errors import RefusedError, TransactionError
from pyspark_delaylog.options import Options
from pyspark_delaylog.tasks import Task
from pyspark_delaylog.versions import WriterCommitMessage

RUNS_MAX: Final = 100
"""The number of failed loads of one name after which the name is refused."""
OPEN: Final = "open"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
MARK_LOOKS: Final = 10
MARK_PAUSE_S: Final = 0.1
"""A run marks its rows right after its commit, so this is long for another run to wait."""
ROOT: Final = "/v1/transactions"

log = logging.getLogger("pyspark_delaylog")


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is open, or that was committed by an earlier run."""

    id: str
    state: str


@dataclass
class Staged(WriterCommitMessage):
    """The commit message of a task for the driver."""

    transaction: str
    state: str
    producer: str = ""
    part: int = 0
    attempt: int = 0
    rows: int = 0
    size: int = 0
    rejected: int = 0
    repeats: int = 0
    seen: int = 0
    """Rows of the DataFrame, counted if the load has a txnAppId; see `same_rows`."""
    sum: int = 0
    """The sum of the hashes of these rows, in a batch write."""
    results: dict[str, int] = field(default_factory=dict)
    """With delivery=direct: rows by the broker's result."""
    past: int = 0
    """Rows that were due over a minute before the load began."""


class CommittedElsewhere(Exception):
    """Another run of the same load has committed: there is nothing left to send."""


class Transactions:
    """The calls about transactions."""

    def __init__(self, options: Options, http: BrokerHttp) -> None:
        self._http = http
        self._namespace = options.namespace
        self._ttl_ms = options.txn_ttl_ms

    def begin(self, name: str) -> Transaction:
        """Return the open transaction of this name, or the committed one if there is one."""
        for identity in _runs_of(name):
            state = self._begun(identity)
            if state in (OPEN, COMMITTED):
                return Transaction(identity, state)
        raise TransactionError(
            f"{RUNS_MAX} transactions of the name {name} were aborted or expired; find out why "
            "this load fails, then give another txnAppId"
        )

    def last_run(self, name: str) -> dict[str, Any] | None:
        """The open or committed transaction of a load, or else its last one; None without any."""
        found = None
        for identity in _runs_of(name):
            try:
                found = self.shape(identity)
            except RefusedError as error:
                if error.status == 404:
                    return found
                raise
            if found["state"] in (COMMITTED, OPEN):
                return found
        return found

    def shape(self, identity: str) -> dict[str, Any]:
        """The state and the counts of a transaction. RefusedError with 404 if it is unknown."""
        return self._http.json("GET", f"{ROOT}/{identity}")

    def announce(self, mark: str) -> None:
        """Begin an empty transaction, whose name alone matters, before the commit of a load."""
        self._begun(mark)

    def mark(self, mark: str) -> None:
        """Commit the transaction of `announce`, after the commit of the load."""
        self.commit(mark, ())

    def is_marked(self, mark: str) -> bool:
        """Whether a run with these rows may have committed: it did not withdraw its mark.

        A driver that died after its commit has left the mark open, or expired.
        """
        try:
            return bool(self.shape(mark)["state"] != ABORTED)
        except RefusedError as error:
            if error.status == 404:
                return False
            raise

    def is_marked_by_another(self, mark: str) -> bool:
        """Whether another run, which has just committed, has the rows of this one.

        Otherwise this run withdraws its mark.
        """
        for _ in range(MARK_LOOKS):
            if self.shape(mark)["state"] == COMMITTED:
                return True
            time.sleep(MARK_PAUSE_S)
        self.abort(mark)
        return False

    def _begun(self, identity: str) -> str:
        shape = {"transaction": identity, "ttl_ms": self._ttl_ms}
        try:
            return str(self._http.json("POST", ROOT, shape).get("state"))
        except RefusedError as error:
            if error.status == 404:
                raise TransactionError(
                    "this broker does not support transactions; run a newer one, or set the "
                    "option delivery=direct"
                ) from error
            raise

    def stage(
        self, identity: str, topic: str | None, producer: str, task: Task, number: int, body: bytes
    ) -> None:
        """Stage a chunk. CommittedElsewhere or TransactionError if the transaction has ended.

        `topic` is None if the chunk has it as a column.
        """
        query: dict[str, str | int] = {
            "producer": producer,
            "part": task.part,
            "attempt": task.attempt,
            "number": number,
        }
        if topic is not None:
            query["topic"] = topic
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
                    "task was done; run the load again (option txnTtlMs is the time until a "
                    "transaction expires; with four times staged_bytes_max of the broker's log, "
                    "64 GiB by default, the one with the oldest parts expires sooner)"
                ) from error
            raise

    def commit(self, identity: str, messages: Iterable[Staged]) -> bool:
        """Publish the rows of these attempts atomically. False if another run has committed.

        After a lost answer nobody can tell which run was first, so it counts as this one.
        """
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
        repeats = self._http.repeats
        try:
            answer = self._http.json("POST", f"{ROOT}/{identity}/commit", {"winners": winners})
        except RefusedError as error:
            if error.status in (404, 409, 410):
                raise TransactionError(
                    f"transaction {identity} cannot be committed: {error.detail} "
                    f"({error.state or error.code}); no row is visible, run the load again"
                ) from error
            raise
        return answer["result"] == "done" or self._http.repeats > repeats

    def abort(self, identity: str) -> None:
        """Discard staged rows. A committed transaction stays."""
        try:
            self._http.json("POST", f"{ROOT}/{identity}/abort", {})
        except RefusedError as error:
            if error.status == 409:
                log.warning("transaction %s was committed before its abort; it stays", identity)
            elif error.status not in (404, 410):
                raise


def _runs_of(name: str) -> Iterator[str]:
    """The names of the transactions of a load, in order."""
    yield name
    for run in range(1, RUNS_MAX):
        yield f"{name}.r{run}"
