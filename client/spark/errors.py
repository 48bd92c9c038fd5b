"""What goes wrong between Spark and the broker, as a short family of exceptions.

The one rule: a message says what to change, and never holds a secret. Spark shows an exception of
a Python worker as its text alone, so what a reader must know stands in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DelaylogError(Exception):
    """Base of everything that is raised here on purpose."""


class OptionError(DelaylogError, ValueError):
    """An option is missing or cannot be used: correct it and start again."""


class SchemaError(DelaylogError, TypeError):
    """The DataFrame has columns that cannot be sent: rename, cast or drop them."""


class RowError(DelaylogError, ValueError):
    """A row cannot be sent: correct the data, or have such rows put aside by `onError`."""


class BrokerError(DelaylogError):
    """A call of the broker did not succeed."""


class UnreachableError(BrokerError):
    """No endpoint answered as it should, after all retries; a call may have been carried out."""


class RefusedError(BrokerError):
    """The broker refused a call by a problem document; nothing was done."""

    def __init__(self, message: str, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", ""))
        self.state = problem.get("state")
        item = problem.get("item")
        self.item: int | None = item if isinstance(item, int) else None
        self.detail = str(problem.get("detail") or problem.get("title") or "")
        super().__init__(message)


class TransactionError(DelaylogError):
    """A transaction ended in a way that leaves this load without effect: run it again."""


class JobError(DelaylogError):
    """A job cannot be done as it was asked for; the text says what to change."""


class DataLossError(DelaylogError):
    """Claimed messages cannot be read any more in this batch; the broker delivers them again."""
