"""Errors of commands, in the words of Redis 7.0.15."""

from __future__ import annotations

from typing import Final


class CommandError(Exception):
    """A command was refused; `text` is the error line without its `-`, like `ERR syntax error`."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text.decode("utf-8", "replace"))
        self.text = text


def c_text(text: bytes) -> bytes:
    """A text up to its first zero byte, as C prints it."""
    return text.partition(b"\0")[0]


WRONG_TYPE: Final = b"WRONGTYPE Operation against a key holding the wrong kind of value"
SYNTAX: Final = b"ERR syntax error"
NOT_INTEGER: Final = b"ERR value is not an integer or out of range"
NOT_FLOAT: Final = b"ERR value is not a valid float"
NO_SUCH_KEY: Final = b"ERR no such key"
OUT_OF_RANGE: Final = b"ERR index out of range"
READ_ONLY: Final = b"READONLY You can't write against a read only replica."
MASTER_DOWN: Final = (
    b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
)
HELD: Final = (
    b"LOADING this broker is held: it changes no keys until `delaylog resume`, or a start with "
    b"--release-hold"
)
"""Clients try again after LOADING, as after a restart, so workers wait for the release."""
NO_MEMORY: Final = b"OOM command not allowed when used memory > 'maxmemory'."
NO_PERMISSION: Final = b"NOPERM this user has no permissions to run the '%b' command"
NO_SCRIPT: Final = b"NOSCRIPT No matching script. Please use EVAL."
SCRIPTS_OFF: Final = b"ERR scripts are off: the broker's setting resp-scripts=on allows them"
EXEC_ABORT: Final = b"EXECABORT Transaction discarded because of previous errors."
EXEC_ABORTED_BY: Final = b"EXECABORT Transaction discarded because of: "
"""EXEC itself was refused; the reason follows, without its `ERR`."""


def wrong_type() -> CommandError:
    """The key has another kind of value."""
    return CommandError(WRONG_TYPE)


def syntax() -> CommandError:
    """An unknown or misplaced option."""
    return CommandError(SYNTAX)


def wrong_arity(name: bytes) -> CommandError:
    """Too few or too many arguments; `name` is shown in lower case."""
    return CommandError(b"ERR wrong number of arguments for '%s' command" % name.lower())
