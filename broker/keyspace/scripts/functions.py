"""The libraries of FUNCTION LOAD: Lua code that registers functions when it runs.

Only the sources are stored. The compiled functions live in the Lua state; when the state is
replaced, they are compiled again from the sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.scripts.conversion import line
from delaylog.broker.keyspace.scripts.runtime import Runtime, ScriptFailure
from delaylog.broker.keyspace.scripts.scripts import Scripts
from delaylog.broker.keyspace.scripts.shebang import FLAGS, check_name, library_head

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
        scripts.on_new_runtime.append(self._forget_bodies)

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

    def call(self, name: bytes, keys: list[bytes], args: list[bytes]) -> Reply:
        """Run a function for FCALL."""
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
        run = partial(runtime.call_function, function.body, len(keys), keys + args)
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
