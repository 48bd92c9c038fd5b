"""How a verb fails: one line for people, or with `--json` one object, and the exit status.

Either goes to standard error, so that standard output holds results and nothing else. The object
is `{"error": {"code": …, "message": …}}` and carries what the error knows besides: `status`,
`field` and `item` of a broker's refusal, `path` and `position` of damage.

The client's errors are looked up only where the client is loaded. Loading it takes half of what
the rest of a start does, `serve` has no use for it, and what is not loaded cannot have failed.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final, NoReturn

import orjson

from delaylog.broker.backup.manifest import BackupError
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.host.config import ConfigError
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
    """Whether a verb raises this on purpose, or because of the world."""
    return any(isinstance(error, kind) for kind, _ in _codes())


def error_object(error: Exception) -> dict[str, Any]:
    """What `--json` says about an error."""
    code = next((code for kind, code in _codes() if isinstance(error, kind)), "failed")
    members = _refusal(error) or {"code": code, "message": str(error)}
    if isinstance(error, CorruptionError):
        members |= {"path": error.path, "position": error.position}
    return {"error": members}


def fail(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong; returns the exit status."""
    if as_json:
        print(orjson.dumps(error_object(error)).decode(), file=sys.stderr)
    else:
        print(f"delaylog: {error}", file=sys.stderr)
    return USAGE if isinstance(error, ConfigError) else WRONG


def _codes() -> _Codes:
    if not _client_is_loaded():
        return _OWN_CODES
    from delaylog.client.errors import AnswerLost, ClientError, NotReached

    # First, since their base is last among them and none of ours is one of theirs.
    return (
        (NotReached, "not_reached"),
        (AnswerLost, "answer_lost"),
        (ClientError, "call"),
        *_OWN_CODES,
    )


def _refusal(error: Exception) -> dict[str, Any]:
    """The members of a broker's refusal; none of any other error."""
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
    """Whether a command line asks for JSON, also one that cannot be parsed."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


class JsonParser(argparse.ArgumentParser):
    """An argument parser that complains in JSON; its sub-parsers are of its kind."""

    def error(self, message: str) -> NoReturn:
        """Wrong words: status 2."""
        sys.exit(fail(ConfigError(message), as_json=True))
