"""The first line of scripts and function libraries: `#!lua flags=no-writes`, `#!lua name=mylib`."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.errors import CommandError

FLAGS: Final = (b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"allow-cross-slot-keys")
_NAME_BYTES: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_BAD_NAME: Final = (
    b"Library names can only contain letters, numbers, or underscores(_) "
    b"and must be at least one character long"
)


def script_head(source: bytes) -> tuple[frozenset[bytes] | None, bytes]:
    """Split a script into its flags (None without a shebang) and its code; line numbers stay."""
    if not source.startswith(b"#!"):
        return None, source
    head, newline, rest = source.partition(b"\n")
    if not newline:
        raise CommandError(b"ERR Invalid script shebang")
    engine, *options = head.split()
    if engine != b"#!lua":
        raise CommandError(b"ERR Unexpected engine in script shebang: " + engine)
    flags: set[bytes] = set()
    for option in options:
        name, equals, value = option.partition(b"=")
        if name != b"flags" or not equals:
            raise CommandError(b"ERR Unknown lua shebang option: " + option)
        for flag in value.split(b",") if value else ():
            if flag not in FLAGS:
                raise CommandError(b"ERR Unexpected flag in script shebang: " + flag)
            flags.add(flag)
    return frozenset(flags), newline + rest


def library_head(source: bytes) -> tuple[bytes, bytes]:
    """Split a library into its name and its code; line numbers stay."""
    if not source.startswith(b"#!"):
        raise CommandError(b"ERR Missing library metadata")
    head, newline, rest = source.partition(b"\n")
    if not newline:
        raise CommandError(b"ERR Invalid library metadata")
    engine, *options = head[2:].split()
    library: bytes | None = None
    for option in options:
        key, equals, value = option.partition(b"=")
        if key.lower() != b"name" or not equals:
            raise CommandError(b"ERR Invalid metadata value given: " + option)
        if library is not None:
            raise CommandError(
                b"ERR Invalid metadata value, name argument was given multiple times"
            )
        library = value
    if library is None:
        raise CommandError(b"ERR Library name was not given")
    check_name(library)
    if engine.lower() != b"lua":
        raise CommandError(b"ERR Engine '%s' not found" % engine)
    return library, newline + rest


def check_name(name: bytes) -> None:
    """Raise a CommandError if Redis does not allow this name for a library or a function."""
    if not name or not _NAME_BYTES.issuperset(name):
        raise CommandError(b"ERR " + _BAD_NAME)
