"""How a verb fails: one line for people, or with `--json` one object, and the exit status.

Both go to standard error, so that standard output has only results. The object is
`{"error": {"code": …, "message": …}}` with the error's other facts: `status`, `field` and `item`
of a broker's refusal, `path` and `position` of damage.

Classes of errors are looked up only in modules that are loaded: a module that is not loaded cannot
have raised one, and loading them all would take most of a start.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from delaylog.broker.cli.values import plain_lines
from delaylog.broker.process.leaves import leaves

DONE: Final = 0
WRONG: Final = 1
USAGE: Final = 2
NOTHING: Final = 3
INTERRUPTED: Final = 130


class UsageError(Exception):
    """The command line cannot be carried out; the text says what to write instead."""


class Interrupted(Exception):
    """A verb was interrupted, and the text says what goes on without it."""


_CODES: Final = (
    ("delaylog.client.errors", "NotReached", "not_reached"),
    ("delaylog.client.errors", "AnswerLost", "answer_lost"),
    # The base of those before it. No class of the other modules derives from it.
    ("delaylog.client.errors", "ClientError", "call"),
    ("delaylog.client.wire.credentials", "CredentialsError", "usage"),
    ("delaylog.broker.host.settings", "ConfigError", "usage"),
    ("delaylog.replication.errors", "ClusterError", "usage"),
    ("delaylog.broker.backup.copies", "BackupError", "backup"),
    ("delaylog.storage.errors", "CorruptionError", "damaged"),
    ("delaylog.storage.errors", "DiskFullError", "disk_full"),
    ("delaylog.storage.errors", "DiskFailedError", "disk_failed"),
    ("delaylog.storage.errors", "StorageError", "storage"),
)
"""Modules, the errors that they raise on purpose or because of the environment, and the codes.
Leaves declare their own."""


_SPACE: Final = "make space on that disk, then run the command again"
_HINTS: Final = (
    (
        "ClientConnectorCertificateError",
        "",
        "--ca-file names the authority that signed the broker's certificate, and the address has "
        "to be a name in it",
    ),
    # The text says it itself.
    ("NotReached", "no TLS there", ""),
    (
        "NotReached",
        "",
        "is a broker running there? `delaylog serve` starts one, --url names another",
    ),
    ("Unauthorized", "", "--token-file or DELAYLOG_TOKEN_FILE names a file with a token"),
    (
        "Forbidden",
        "lacks the right",
        "an administrator grants it by `delaylog token create NAME --allow …`, which takes all "
        "grants of NAME, as `delaylog token show NAME` prints them",
    ),
    ("BadRequest", "with force, give ids", "--by-id takes ids"),
    ("Conflict", "voters would stay", "--force removes them all the same"),
    ("NotFound", "no topic", "`delaylog topics` lists them, and the first send makes one"),
    ("NotFound", "no group", "`delaylog groups make TOPIC GROUP` makes one"),
    ("NotFound", "no schedule", "`delaylog schedule list TOPIC` lists them"),
    ("NotFound", "no target", "`delaylog target set TOPIC GROUP --to URL` makes one"),
    ("NotFound", "no message", "`delaylog list TOPIC --state all` lists them"),
    ("NotFound", "no job", "`delaylog jobs` lists them"),
    ("NotFound", "no claim", "`delaylog claims list TOPIC` lists those that have not ended"),
    ("NotFound", "no transaction", "`delaylog transactions list` lists them"),
    ("NotFound", "no principal", "`delaylog token list` lists them"),
    ("NotReady", "lead", "try again soon; `delaylog cluster doctor` says what the cluster lacks"),
    # The text says who ends a hold.
    ("NotReady", "is held", ""),
    ("NotReady", "", "try again soon; the broker's log says what it does"),
    (
        "TooLarge",
        "",
        "send less; `delaylog config` shows the limits that a broker's file may change",
    ),
    ("QuotaExceeded", "topic", "`delaylog topic show TOPIC` shows its quota"),
    ("DiskFull", "", "make space on the broker's disk; receives, acks and cancels work meanwhile"),
    ("DiskFullError", "", _SPACE),
    ("OSError", "No space left on device", _SPACE),
)
"""Classes of errors, texts in them, and what to do then, for people. The first that fits counts.

TOPIC and GROUP are replaced by the names in the text.
"""
_NAMED: Final = re.compile(r"\b(topic|group) '([^'\\]+)'")


def _codes() -> Iterator[tuple[type[Exception], str]]:
    for module, name, code in (*_CODES, *(each for leaf in leaves() for each in leaf.errors)):
        if module in sys.modules:
            yield getattr(sys.modules[module], name), code
    yield UsageError, "usage"
    yield OSError, "io"


def is_expected(error: Exception) -> bool:
    """Whether a verb raises this error on purpose, or because of its environment."""
    return any(isinstance(error, kind) for kind, _ in _codes())


def error_object(error: Exception) -> dict[str, Any]:
    """The object that `--json` prints for an error."""
    code = next((code for kind, code in _codes() if isinstance(error, kind)), "failed")
    members = _refusal(error) or {"code": code, "message": _text(error)}
    if code == "damaged":
        members |= {name: getattr(error, name) for name in ("path", "position")}
    return {"error": members}


def fail(error: Exception, *, as_json: bool) -> int:
    """Print the error and return the exit status."""
    members = error_object(error)
    if as_json:
        _say_json(members)
    else:
        print(f"delaylog: {plain_lines(_text(error))}{_hint(error)}", file=sys.stderr)
    return USAGE if members["error"]["code"] == "usage" else WRONG


def _text(error: Exception) -> str:
    """The error; one of the operating system without its number."""
    if type(error).__module__ != "builtins" or not isinstance(error, OSError):
        return str(error)
    place = "" if error.filename is None else f"{error.filename}: "
    return f"{place}{error.strerror or error}"


def _hint(error: Exception) -> str:
    kinds = [*type(error).__mro__, *type(error.__cause__).__mro__]
    names, text = {kind.__name__ for kind in kinds}, str(error)
    found = (hint for name, part, hint in _HINTS if name in names and part in text)
    hint = next(found, "")
    for word, name in _NAMED.findall(text):
        hint = hint.replace(word.upper(), shlex.quote(name))
    return f"; {hint}" if hint else ""


def say_interrupted(error: Interrupted, *, as_json: bool) -> None:
    """Say what goes on after an interruption."""
    if as_json:
        _say_json({"error": {"code": "interrupted", "message": str(error)}})
    else:
        print(f"delaylog: {error}", file=sys.stderr)


def _say_json(members: dict[str, Any]) -> None:
    import orjson

    print(orjson.dumps(members).decode(), file=sys.stderr)


def _refusal(error: Exception) -> dict[str, Any]:
    """The members of a broker's refusal; empty for any other error."""
    if "delaylog.client.errors" not in sys.modules:
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


def wants_json(words: list[str]) -> bool:
    """Whether a command line asks for JSON, even if it cannot be parsed."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


class LineParser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line; its sub-parsers do too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # An abbreviation would stop working when another option begins alike.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        # No option begins with a digit, so `-30d` is a value, such as that of --due-from.
        self._negative_number_matcher = re.compile(r"-\d")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but the verb reports words that it does not know, not `delaylog`."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            words = [each for each in args or () if not each.startswith("-")]
            options = list(self._option_string_actions)
            self.error(_unknown_words(self.prog, words, unknown, options))
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does, but with the action that a word probably means."""
        known = action.choices
        if isinstance(action, argparse._SubParsersAction) and known and value not in known:
            from delaylog.broker.cli.meant import command_meant

            verb = self.prog.rpartition(" ")[2]
            meant = command_meant(verb, value, list(known))
            near = f"did you mean `delaylog {meant}`? " if meant else ""
            actions = ", ".join(known)
            raise argparse.ArgumentError(
                None, f"{verb} has no action {value!r}: {near}it has {actions}"
            )
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line and exit with status 2."""
        joined = message if message.endswith("?") else f"{message};"
        sys.exit(fail(UsageError(f"{joined} `{self.prog} --help` says more"), as_json=False))


def _unknown_words(
    prog: str, words: Sequence[str], unknown: Sequence[str], options: Sequence[str]
) -> str:
    """What is said of words that belong to no argument, with what is meant. `words`: all that are
    no options.
    """
    from delaylog.broker.cli.meant import action_of, option_meant

    first = unknown[0]
    if not first.startswith("-"):
        action = action_of(prog.rpartition(" ")[2], words[0])
        if action is not None:
            return f"{words[0]!r} is one word too many; did you mean `delaylog {action}`?"
        return f"too many words, from {first!r} on; quote a text that has spaces"
    name = first.partition("=")[0]
    near = option_meant(name, options)
    return f"there is no option {name}" + (f"; did you mean {near}?" if near else "")


class JsonParser(LineParser):
    """An argument parser that reports errors as JSON; its sub-parsers do too."""

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line and exit with status 2."""
        sys.exit(fail(UsageError(message), as_json=True))
