"""CONFIG: the settings that have a meaning here, and the few of them that clients may change.

A change lasts until the process ends. CONFIG SET checks all its pairs before it applies the first.
Settings that only tune the internals of Redis are unknown. A setting without `bounds` is read-only:
CONFIG SET accepts only its present value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Map, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.server_state import ServerState
from delaylog.broker.keyspace.values.globs import matcher
from delaylog.broker.keyspace.values.number_texts import INT64_MAX

_ADMIN: Final = "admin noscript loading stale"
_AMOUNT: Final = re.compile(rb"([0-9]{1,127})(|b|k|kb|m|mb|g|gb)").fullmatch
_UNITS: Final = {
    b"": 1,
    b"b": 1,
    b"k": 1000,
    b"kb": 1024,
    b"m": 1000**2,
    b"mb": 1024**2,
    b"g": 1000**3,
    b"gb": 1024**3,
}
_FAILED: Final = b"ERR CONFIG SET failed (possibly related to argument '%b') - %b"
_UNKNOWN: Final = b"ERR Unknown option or number of arguments for CONFIG SET - '%b'"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that CONFIG knows."""

    default: bytes
    """The default; the host's configuration may fix another (`ServerState.given`)."""
    bounds: tuple[int, int] | None = None
    """The bounds of values that clients may set; `on_setting` notifies the host."""


SETTINGS: Final = {
    b"appendfsync": Setting(b"everysec"),
    b"appendonly": Setting(b"no"),
    b"bind": Setting(b"127.0.0.1"),
    b"client-query-buffer-limit": Setting(b"%d" % 2**30, (2**20, INT64_MAX)),
    b"databases": Setting(b"16"),
    b"maxclients": Setting(b"10000", (1, 2**32 - 1)),
    b"maxmemory": Setting(b"0"),
    b"maxmemory-policy": Setting(b"noeviction"),
    b"notify-keyspace-events": Setting(b""),
    b"port": Setting(b"6379"),
    b"proto-max-bulk-len": Setting(b"%d" % 2**29, (2**20, INT64_MAX)),
    b"save": Setting(b""),
    b"timeout": Setting(b"0"),
}


def value_of(server: ServerState, name: bytes) -> bytes:
    """Return the present value of a setting."""
    value = server.settings.get(name)
    if value is None:
        value = server.given.get(name)
    return SETTINGS[name].default if value is None else value


@command("config|get", -3, "server", _ADMIN)
def config_get(run: Run, argv: Args) -> Reply:
    """List the settings whose names match one of the patterns."""
    server = run.shared.server
    found: dict[bytes, bytes] = {}
    for pattern in argv[2:]:
        taken = {name.lower() for name in found}
        name = pattern.lower()
        if name in SETTINGS:
            if name not in taken:
                found[pattern] = value_of(server, name)
            continue
        match = matcher(pattern, ignore_case=True)
        found |= {
            name: value_of(server, name) for name in SETTINGS if name not in taken and match(name)
        }
    return Map([text for pair in found.items() for text in pair])


@command("config|set", -4, "server", _ADMIN)
def config_set(run: Run, argv: Args) -> Reply:
    """Change settings, all of them or none: name value [name value ...]."""
    if len(argv) % 2:
        raise syntax()
    server = run.shared.server
    names = [word.lower() for word in argv[2::2]]
    for at, name in enumerate(names):
        word = argv[2 + 2 * at]
        if name not in SETTINGS:
            raise CommandError(_UNKNOWN % word)
        if name in names[:at]:
            raise CommandError(_FAILED % (word, b"duplicate parameter"))
    values: dict[bytes, bytes] = {}
    for name, word, text in zip(names, argv[2::2], argv[3::2], strict=True):
        try:
            values[name] = _checked(SETTINGS[name], value_of(server, name), text)
        except CommandError as error:
            raise CommandError(_FAILED % (word, error.text)) from None
    for name, value in values.items():
        if SETTINGS[name].bounds is not None:
            server.settings[name] = value
        if name in server.on_setting:
            server.on_setting[name](value)
    return OK


def _checked(setting: Setting, now: bytes, text: bytes) -> bytes:
    """Return a value in the form of CONFIG GET. Raises CommandError with the bare reason."""
    if setting.bounds is None:
        if text.lower() != now.lower():
            raise CommandError(b"delaylog cannot change this, it stays '%b'" % now)
        return now
    found = _AMOUNT(text.lower())
    if found is None:
        raise CommandError(b"argument must be a memory value")
    value = int(found[1]) * _UNITS[found[2]]
    least, most = setting.bounds
    if not least <= value <= most:
        raise CommandError(b"argument must be between %d and %d inclusive" % (least, most))
    return b"%d" % value


@command("config|resetstat", 2, "server", _ADMIN)
def config_resetstat(run: Run, argv: Args) -> Reply:
    """Reset the counters of INFO."""
    server = run.shared.server
    server.forgotten = {
        "commands_run": server.commands_run,
        "errors_answered": server.errors_answered,
        "connections": server.connections,
        "refused_connections": server.refused_connections,
        "expired_keys": run.keyspace.expired_keys,
    }
    return OK
