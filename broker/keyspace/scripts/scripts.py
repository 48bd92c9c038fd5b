"""The script cache: scripts are compiled once, found by their SHA1, and run one at a time.

The callable `call` runs a command for a script. It returns an ErrorReply instead of raising one,
refuses writes while `read_only` is set, and calls `note_write()` before a write. The writes of a
script that then raises an error stay. Those of a stopped script are undone if there is a log
(limits.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from delaylog.broker.keyspace.errors import NO_SCRIPT, CommandError
from delaylog.broker.keyspace.replies import ErrorReply, Reply
from delaylog.broker.keyspace.scripts.conversion import line
from delaylog.broker.keyspace.scripts.limits import LIMITS, ScriptLimits
from delaylog.broker.keyspace.scripts.runtime import Owner, Runtime, ScriptFailure
from delaylog.broker.keyspace.scripts.shebang import script_head

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
        self.running = False
        self.read_only = False
        self.on_stopped: Callable[[], bool] = lambda: False
        """Called when a script was stopped after a write; returns whether the write is undone."""
        self.on_new_runtime: list[Callable[[], None]] = []
        self._now = now
        self._owner = Owner(call, self._must_stop)
        self._scripts: dict[bytes, _Script] = {}
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
            if len(self._scripts) >= self.limits.scripts_max:
                del self._scripts[next(iter(self._scripts))]
            self._scripts[sha] = script
        return sha

    def known(self, sha: bytes) -> bool:
        """Whether EVALSHA would find this script."""
        return sha in self._scripts or sha.lower() in self._scripts

    def flush(self) -> None:
        """Forget all scripts. The Lua state is kept: function libraries live in it too."""
        self._scripts.clear()
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

    def note_write(self) -> None:
        """Note that the running script writes: `seconds_after_write` is its time limit now."""
        self.wrote = True

    # For functions.py, which shares the Lua state.

    @property
    def owner(self) -> Owner:
        """The callables of the server that the Lua state uses."""
        return self._owner

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
            for forget in self.on_new_runtime:
                forget()
            runtime = self._runtime = Runtime(self._owner, self.limits)
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
            raise CommandError(line(text.split(b"\0")[0].rstrip(b"\r\n") + tail)) from None
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
