"""How a verb fails: one line for people, or with `--json` one object, and the exit status.

Both go to standard error, so that standard output has only results. The object is
`{"error": {"code": …, "message": …}}` with the error's other facts: `status`, `field` and `item`
of a broker's refusal, `path` and `position` of damage.

The client's errors are looked up only if the client is loaded. Loading it takes half as long as the
rest of a start, `serve` does not need it, and a module that is not loaded cannot have raised.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final, NoReturn

import orjson

from delaylog.broker.backup.manifest import BackupError
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.host.settings.options import ConfigError
from delaylog.storage.errors import (
    CorruptionError,
    DiskFailedError,
    DiskFullError,
    StorageError,
)

DONE: Final = 0
WRONG: Final = 1
USAGE: Final = 2
NOTHING: Final = 3
INTERRUPTED: Final = 130

_Codes = tuple[tuple[type[Exception], str], ...]

_OWN_CODES: Final[_Codes] = (
    (ConfigError, "usage"),
    (BackupError, "backup"),
    (DrillError, "drill"),
    (CorruptionError, "damaged"),
    (DiskFullError, "disk_full"),
    (DiskFailedError, "disk_failed"),
    (StorageError, "storage"),
    (OSError, "io"),
)


def is_expected(error: Exception) -> bool:
    """Whether a verb raises this error on purpose, or because of its environment."""
    return any(isinstance(error, kind) for kind, _ in _codes())


def error_object(error: Exception) -> dict[str, Any]:
    """The object that `--json` prints for an error."""
    code = next((code for kind, code in _codes() if isinstance(error, kind)), "failed")
    members = _refusal(error) or {"code": code, "message": str(error)}
    if isinstance(error, CorruptionError):
        members |= {"path": error.path, "position": error.position}
    return {"error": members}


def fail(error: Exception, *, as_json: bool) -> int:
    """Print the error and return the exit status."""
    if as_json:
        print(orjson.dumps(error_object(error)).decode(), file=sys.stderr)
    else:
        print(f"delaylog: {error}", file=sys.stderr)
    return USAGE if error_object(error)["error"]["code"] == "usage" else WRONG


def _codes() -> _Codes:
    if not _client_is_loaded():
        return _OWN_CODES
    from delaylog.client.errors import AnswerLost, ClientError, NotReached
    from delaylog.client.wire.credentials import CredentialsError

    # The client's come first. ClientError is the base of those before it, and no class of ours
    # derives from it.
    return (
        (NotReached, "not_reached"),
        (AnswerLost, "answer_lost"),
        (ClientError, "call"),
        (CredentialsError, "usage"),
        *_OWN_CODES,
    )


def _refusal(error: Exception) -> dict[str, Any]:
    """The members of a broker's refusal; empty for any other error."""
    if not _client_is_loaded():
        return {}
    from delaylog.client.errors import ApiError

    if not isinstance(error, ApiError):
        return {}
    known = {"field": error.field, "item": error.item, "state": error.state}
    return {
        "code": error.code,
        "message": str(error),
        "status": error.status,
        **{name: value for name, value in known.items() if value is not None},
    }


def _client_is_loaded() -> bool:
    return "delaylog.client.errors" in sys.modules


def wants_json(words: list[str]) -> bool:
    """Whether a command line asks for JSON, even if it cannot be parsed."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


class JsonParser(argparse.ArgumentParser):
    """An argument parser that reports errors as JSON; its sub-parsers do too."""

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line and exit with status 2."""
        sys.exit(fail(ConfigError(message), as_json=True))
