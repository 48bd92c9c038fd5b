"""CONFIG: settings as clients read them, and the few that can be changed while it runs.

A change is remembered until the process ends; all pairs of a CONFIG SET are checked before the
first is taken. A limit that nobody would keep is refused rather than remembered, so no client
believes in it; what only tunes Redis's inside is remembered and shown, and changes nothing.
"""

from __future__ import annotations

import re
from typing import Final

from delaylog.broker.keyspace.commands.settings_table import ALIASES, SETTINGS, Setting
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.globs import matcher
from delaylog.broker.keyspace.number_texts import is_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import OK, Map, Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.server_state import ServerState

_ADMIN: Final = "admin noscript loading stale"
_MEMORY: Final = re.compile(rb"([0-9]+)(|b|k|kb|m|mb|g|gb)").fullmatch
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
_DIGITS_MAX: Final = 127
_EVENTS: Final = b"Ag$lshzxeKEtmdn"
_BOUNDS: Final = b"argument must be between %d and %d inclusive"
_FAILED: Final = b"ERR CONFIG SET failed (possibly related to argument '%b') - %b"
_UNKNOWN: Final = b"ERR Unknown option or number of arguments for CONFIG SET - '%b'"
_NOT_HERE: Final = b"delaylog cannot change this, it stays '%b'"
_NO_EVENTS: Final = b"keyspace events are not supported"


def value_of(server: ServerState, name: bytes) -> bytes:
    """What a setting is now; `name` is none of the older ones."""
    value = server.settings.get(name)
    if value is None:
        value = server.given.get(name)
    return SETTINGS[name].default if value is None else value


@command("config|get", -3, "server", _ADMIN)
def config_get(run: Run, argv: Args) -> Reply:
    """Settings whose names match one of the patterns."""
    server = run.executor.server
    found: dict[bytes, bytes] = {}
    for pattern in argv[2:]:
        if not any(char in pattern for char in b"?*["):
            name = pattern.lower()
            known = ALIASES.get(name, name)
            if known in SETTINGS and not any(name == other.lower() for other in found):
                found[pattern] = value_of(server, known)
            continue
        match = matcher(pattern, ignore_case=True)
        taken = {other.lower() for other in found}
        for name in (*SETTINGS, *ALIASES):
            if name not in taken and match(name):
                found[name] = value_of(server, ALIASES.get(name, name))
    return Map([text for pair in found.items() for text in pair])


@command("config|set", -4, "server", _ADMIN)
def config_set(run: Run, argv: Args) -> Reply:
    """Change settings, all of them or none: name value [name value ...]."""
    if len(argv) % 2:
        raise syntax()
    server = run.executor.server
    settings: dict[bytes, Setting] = {}
    for word in argv[2::2]:
        name = word.lower()
        name = ALIASES.get(name, name)
        if (setting := SETTINGS.get(name)) is None:
            raise CommandError(_UNKNOWN % word)
        if setting.change in ("fixed", "protected"):
            kind = b"immutable" if setting.change == "fixed" else b"protected"
            raise CommandError(_FAILED % (word, b"can't set %b config" % kind))
        if name in settings:
            raise CommandError(_FAILED % (word, b"duplicate parameter"))
        settings[name] = setting
    values: dict[bytes, bytes] = {}
    for setting, word, text in zip(settings.values(), argv[2::2], argv[3::2], strict=True):
        try:
            value = _checked(setting, text)
            now = value_of(server, setting.name)
            if setting.change == "held" and value != now:
                raise CommandError(_NOT_HERE % now)
        except CommandError as error:
            raise CommandError(_FAILED % (word, error.text)) from None
        values[setting.name] = value
    for name, value in values.items():
        if name not in server.given:
            server.settings[name] = value
        if name in server.on_setting:
            server.on_setting[name](value)
    return OK


def _checked(setting: Setting, text: bytes) -> bytes:
    """A value as CONFIG GET will show it. Raises CommandError with the reason alone."""
    kind = setting.kind
    if kind == "flag":
        if text.lower() not in (b"yes", b"no"):
            raise CommandError(b"argument must be 'yes' or 'no'")
        return text.lower()
    if kind == "words":
        if text.lower() not in setting.words:
            known = b", ".join(setting.words)
            raise CommandError(b"argument(s) must be one of the following: %b" % known)
        return text.lower()
    if kind == "events":
        if text.strip(_EVENTS):
            reason = b"Invalid event class character. Use '%b'." % _EVENTS
            raise CommandError(reason)
        if text:
            raise CommandError(_NO_EVENTS)
        return text
    if kind == "text":
        return text
    if kind == "memory":
        value = _bytes_of(text)
    elif not is_int(text):
        raise CommandError(b"argument couldn't be parsed into an integer")
    else:
        value = int(text)
    if not setting.low <= value <= setting.high:
        raise CommandError(_BOUNDS % (setting.low, setting.high))
    return b"%d" % value


def _bytes_of(text: bytes) -> int:
    """An amount of memory, with a unit or without."""
    found = _MEMORY(text.lower())
    if found is None or len(found[1]) > _DIGITS_MAX:
        raise CommandError(b"argument must be a memory value")
    return int(found[1]) * _UNITS[found[2]]


@command("config|resetstat", 2, "server", _ADMIN)
def config_resetstat(run: Run, argv: Args) -> Reply:
    """Have INFO count from zero again."""
    server = run.executor.server
    server.forgotten = {
        "commands_run": server.commands_run,
        "errors_answered": server.errors_answered,
        "connections": server.connections,
        "refused_connections": server.refused_connections,
        "expired_keys": run.keyspace.expired_keys,
    }
    return OK
