"""The exceptions of the Spark connector.

The one rule: the text of an exception says what to change, and contains no secret. Spark shows an
exception of a Python worker as its text alone, so the text has everything that a reader must know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DelaylogError(Exception):
    """Base of all errors that the connector raises deliberately."""


class OptionError(DelaylogError, ValueError):
    """An option is missing or cannot be used: correct it and start again."""


class SchemaError(DelaylogError, TypeError):
    """The DataFrame has columns that cannot be sent: rename, cast or drop them."""


class VersionError(DelaylogError):
    """This version of PySpark cannot do what is asked."""


class LoadError(DelaylogError, ImportError):
    """A package that a format needs is missing where Spark's workers run."""


class RowError(DelaylogError, ValueError):
    """A row cannot be sent: correct the data, or let `onError` divert such rows."""


class BrokerError(DelaylogError):
    """A call to the broker failed."""


class UnreachableError(BrokerError):
    """No endpoint gave a valid answer in `retryForMs`; the call may have been carried out."""


class UnusableEndpointError(BrokerError):
    """No call can succeed before the address or the files of TLS are changed."""


class RefusedError(BrokerError):
    """The broker refused the call with a problem document; nothing was done."""

    def __init__(self, message: str, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", ""))
        self.state = problem.get("state")
        item = problem.get("item")
        self.item: int | None = item if isinstance(item, int) else None
        self.field: str | None = problem.get("field")
        self.quota: str | None = problem.get("quota")
        self.detail = str(problem.get("detail") or problem.get("title") or "")
        super().__init__(message)


class TransactionError(DelaylogError):
    """The transaction ended without effect, so nothing was loaded: run the load again."""


class PartialLoadError(DelaylogError):
    """Fewer messages were added than the DataFrame has rows; those that were added stay."""


class JobError(DelaylogError):
    """The job cannot run with these arguments; the text says what to change."""


class ExpiredClaimError(DelaylogError):
    """The claim of a batch has ended, and `onExpiredClaim=fail` says not to go on without it."""
