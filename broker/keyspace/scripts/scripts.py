"""The script cache and the libraries of FUNCTION LOAD.

Scripts are compiled once, found by their SHA1, and run one at a time. The callable `call` runs a
command for a script. It returns an ErrorReply instead of raising one, refuses writes while
`read_only` is set, and sets `wrote` before a write. The writes of a script that then raises
an error stay. Those of a stopped script are undone if there is a log (`ScriptLimits`).

A library is Lua code that registers functions when it runs. Only the sources are stored. The
compiled functions live in the Lua state; when the state is replaced, they are compiled again from
the sources.

The first line of either may be `#!lua flags=no-writes` or `#!lua name=mylib`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from delaylog.broker.keyspace.errors import NO_SCRIPT, CommandError, c_text
from delaylog.broker.keyspace.replies import ErrorReply, Reply
from delaylog.broker.keyspace.scripts.runtime import (
    LIMITS,
    Owner,
    Runtime,
    ScriptFailure,
    ScriptLimits,
    line,
)

# ------------------------------------------------------------------------------- the first line

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


# -------------------------------------------------------------------------------------- scripts

_UNDONE: Final = b"; its writes are undone"


@dataclass(slots=True, eq=False)
class _Script:
    """A script: code, flags, and the function compiled from it in `runtime`."""

    code: bytes
    flags: frozenset[bytes] | None
    body: Any = None
    runtime: Runtime | None = None


class Scripts:
    """The script cache and the Lua state that scripts and functions share."""

    def __init__(
        self,
        call: Callable[[list[bytes]], Reply | ErrorReply],
        now: Callable[[], float],
        limits: ScriptLimits | None = None,
    ) -> None:
        self.limits = limits or LIMITS
        self.wrote = False
        """The running script has written: `seconds_after_write` is its time limit now."""
        self.running = False
        self.read_only = False
        self.on_stopped: Callable[[], bool] = lambda: False
        """Called when a script was stopped after a write; returns whether the write is undone."""
        self.on_new_runtime: Callable[[], None] = lambda: None
        """The libraries set this: their compiled functions would keep the old state alive."""
        self._now = now
        self.owner = Owner(call, self._must_stop)
        """The callables of the server that the Lua state uses."""
        self._scripts: dict[bytes, _Script] = {}
        self._size = 0
        """Bytes of the code of all scripts."""
        self._runtime: Runtime | None = None
        self._started = 0.0
        self._seconds = 0.0
        self._stopped = b""

    # The cache.

    def load(self, source: bytes) -> bytes:
        """Compile a script, cache it and return its SHA1 in hex. Raises CommandError."""
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        if sha not in self._scripts:
            flags, code = script_head(source)
            script = _Script(code, flags)
            self._compile(script)
            self._scripts[sha] = script
            self._size += len(code)
            limits = self.limits
            while len(self._scripts) > limits.scripts_max or (
                self._size > limits.scripts_bytes_max and len(self._scripts) > 1
            ):
                oldest = self._scripts.pop(next(iter(self._scripts)))
                self._size -= len(oldest.code)
        return sha

    def known(self, sha: bytes) -> bool:
        """Whether EVALSHA would find this script."""
        return sha in self._scripts or sha.lower() in self._scripts

    def flush(self) -> None:
        """Forget all scripts. The Lua state is kept: function libraries live in it too."""
        self._scripts.clear()
        self._size = 0
        if self._runtime is not None and not self.running:
            self._runtime.collect()

    # Running.

    def run(self, sha: bytes, count: int, words: list[bytes]) -> Reply:
        """Run a script. The first `count` words are its keys, the others its arguments.

        Raises CommandError if the script is unknown or fails. If the script returns {err=...}, the
        reply is an ErrorReply.
        """
        script = self._scripts.get(sha)
        if script is None:
            sha = sha.lower()
            script = self._scripts.get(sha)
            if script is None:
                raise CommandError(NO_SCRIPT)
        runtime = self._runtime
        body = script.body
        if runtime is None or script.runtime is not runtime or runtime.is_worn():
            body = self._compile(script)
            runtime = self.runtime()
        flags = script.flags
        read_only = flags is not None and b"no-writes" in flags
        return self.start(sha, partial(runtime.run, body, count, words), read_only=read_only)

    def runtime(self) -> Runtime:
        """Return the Lua state; a new one if the old one ran out of memory or stays half full."""
        runtime = self._runtime
        if runtime is not None and not self.running and runtime.is_worn():
            if not runtime.spoiled:
                runtime.collect()
            if runtime.is_worn():
                runtime = None
        if runtime is None:
            # Compiled functions would keep the old state alive.
            for script in self._scripts.values():
                script.body = script.runtime = None
            self.on_new_runtime()
            runtime = self._runtime = Runtime(self.owner, self.limits)
        return runtime

    def start(
        self,
        name: bytes,
        run: Callable[[], Reply],
        *,
        read_only: bool,
    ) -> Reply:
        """Run a script or a function under the limits; errors contain `name` and the line."""
        if self.running:
            raise CommandError(b"ERR This Redis command is not allowed from script")
        self.running = True
        self.wrote = False
        self.read_only = read_only
        self._seconds = self.limits.seconds
        self._started = self._now()
        try:
            return run()
        except ScriptFailure as failure:
            if self._stopped and self.wrote and self.on_stopped():
                raise CommandError(self._stopped.partition(b";")[0] + _UNDONE) from None
            text = self._stopped or failure.text
            source, where = failure.source, failure.line
            if source is None:
                raise CommandError(line(text + b" script: " + name)) from None
            tail = b" script: %s, on %s:%d." % (name, source, where or 0)
            raise CommandError(line(c_text(text).rstrip(b"\r\n") + tail)) from None
        finally:
            self.running = False
            self.read_only = False
            if self._stopped:
                self._clear_stop()

    @contextmanager
    def loading(self, seconds: float, stopped: bytes) -> Iterator[None]:
        """Limit the time in which a library's code runs; `stopped` is the error when it is over."""
        self.running = True
        self.wrote = False
        self._seconds = seconds
        self._started = self._now()
        try:
            yield
        except ScriptFailure as failure:
            raise ScriptFailure(stopped if self._stopped else failure.text) from None
        finally:
            self.running = False
            if self._stopped:
                self._clear_stop()

    def _clear_stop(self) -> None:
        self._stopped = b""
        if self._runtime is not None and not self._runtime.spoiled:
            self._runtime.rearm()

    def _must_stop(self) -> bool:
        """Return whether the running script must be stopped now; Lua's hook asks this."""
        if not self.running:
            return False
        seconds = self.limits.seconds_after_write if self.wrote else self._seconds
        if self._now() - self._started < seconds:
            return False
        self._stopped = b"ERR Script stopped: it ran longer than %.10g seconds" % seconds + (
            b"; its writes stay" if self.wrote else b" without writing"
        )
        return True

    def _compile(self, script: _Script) -> Any:
        runtime = self.runtime()
        try:
            script.body = runtime.compile(script.code, b"@user_script")
        except ScriptFailure as failure:
            raise CommandError(
                line(b"ERR Error compiling script (new function): " + failure.text)
            ) from None
        script.runtime = runtime
        return script.body


# ------------------------------------------------------------------------------------ libraries

# A library's code only registers functions. Redis has the same limit.
_LOAD_SECONDS: Final = 0.5


@dataclass(slots=True)
class Function:
    """One registered function."""

    name: bytes
    library: bytes
    body: Any
    description: bytes | None
    flags: list[bytes]


@dataclass(slots=True)
class Library:
    """A library: its source, and the functions it registered, in order of registration."""

    name: bytes
    source: bytes
    functions: dict[bytes, Function]
    runtime: Runtime | None


class FunctionLibraries:
    """All libraries of the server."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._libraries: dict[bytes, Library] = {}
        self._functions: dict[bytes, Function] = {}
        # Those of before, after a FUNCTION FLUSH, are told no more.
        scripts.on_new_runtime = self._forget_bodies

    def load(self, source: bytes, *, replace: bool = False) -> bytes:
        """Load a library and return its name. A CommandError means that nothing has changed."""
        name, code = library_head(source)
        old = self._libraries.get(name)
        if old is not None and not replace:
            raise CommandError(b"ERR Library '%s' already exists" % name)
        library = self._compile(name, source, code)
        for function in library.functions:
            other = self._functions.get(function)
            if other is not None and other.library != name:
                raise CommandError(b"ERR Function %s already exists" % function)
        if old is not None:
            self.delete(name)
        self._keep(library)
        return name

    def delete(self, name: bytes) -> None:
        """Forget a library and its functions."""
        library = self._libraries.pop(name, None)
        if library is None:
            raise CommandError(b"ERR Library not found")
        for function in library.functions:
            del self._functions[function]

    def libraries(self) -> Iterable[Library]:
        """Return all libraries, for FUNCTION LIST."""
        return self._libraries.values()

    def function(self, name: bytes) -> Function | None:
        """Return a function, or None if no library has registered it."""
        return self._functions.get(name)

    def call(self, name: bytes, count: int, words: list[bytes]) -> Reply:
        """Run a function for FCALL. The first `count` words are its keys."""
        function = self._functions.get(name)
        if function is None:
            raise CommandError(b"ERR Function not found")
        read_only = b"no-writes" in function.flags
        runtime = self._scripts.runtime()
        library = self._libraries[function.library]
        if library.runtime is not runtime:
            self._recompile(library)
            function = self._functions[name]
            runtime = self._scripts.runtime()
        run = partial(runtime.call_function, function.body, count, words)
        return self._scripts.start(name, run, read_only=read_only)

    def dump(self) -> dict[bytes, bytes]:
        """Return the sources by library name."""
        return {library.name: library.source for library in self._libraries.values()}

    def _keep(self, library: Library) -> None:
        self._libraries[library.name] = library
        self._functions.update(library.functions)

    def _forget_bodies(self) -> None:
        for library in self._libraries.values():
            library.runtime = None
            for function in library.functions.values():
                function.body = None

    def _recompile(self, library: Library) -> None:
        """Compile a library again, in the current Lua state."""
        fresh = self._compile(library.name, library.source, library_head(library.source)[1])
        self._libraries[library.name] = fresh
        self._functions.update(fresh.functions)

    def _compile(self, name: bytes, source: bytes, code: bytes) -> Library:
        scripts = self._scripts
        runtime = scripts.runtime()
        functions: dict[bytes, Function] = {}

        def register(
            function: bytes, body: Any, description: bytes | None, flags: list[bytes]
        ) -> bytes | None:
            try:
                check_name(function)
            except CommandError as problem:
                return problem.text
            if function in functions:
                return b"ERR Function already exists in the library"
            if any(flag not in FLAGS for flag in flags):
                return b"ERR unknown flag given"
            functions[function] = Function(function, name, body, description, flags)
            return None

        try:
            body = runtime.compile(code, b"@user_function", library=True)
        except ScriptFailure as failure:
            raise CommandError(line(b"ERR Error compiling function: " + failure.text)) from None
        scripts.owner.register = register
        try:
            with scripts.loading(_LOAD_SECONDS, b"ERR FUNCTION LOAD timeout"):
                runtime.load_library(body)
        except ScriptFailure as failure:
            raise CommandError(line(b"ERR Error registering functions: " + failure.text)) from None
        finally:
            scripts.owner.register = None
        if not functions:
            raise CommandError(b"ERR No functions registered")
        return Library(name, source, functions, runtime)
