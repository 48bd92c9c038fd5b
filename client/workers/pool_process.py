"""One process of a pool: `python -m delaylog.client.workers.pool_process APP FD LEVEL FORM`.

It imports the application and runs it until SIGTERM. The socket FD joins it to the parent. In lines
of a word and a text it tells how long its stop may take, each second whether its consumers are
connected, and at the end why another start would not help. If the parent is gone, it ends as after
SIGTERM.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Any, Final, Protocol

from delaylog.client.errors import ClientClosed, ClientError
from delaylog.client.workers.consumer import (
    Declaring,
    NothingToRun,
    RunOnImport,
    below_main,
    importing,
)
from delaylog.log_lines import JsonFormatter

# Finds an application by its name, `module:attribute`.


class Application(Protocol):
    """A client or an embedded broker with consumers or tasks."""

    def connected(self) -> bool:
        """Whether its consumers are connected."""

    def run(self) -> Any:
        """Handle messages until a signal; a coroutine function if it is of asyncio."""

    def close(self) -> Any:
        """Release what it has; a coroutine function if it is of asyncio."""

    def _check_open(self) -> None: ...

    def _stop_limit_s(self) -> float: ...


class LoadError(Exception):
    """There is no application of that name."""


def load(name: str) -> Application:
    """Import the application. LoadError, or whatever its module raises.

    The attribute is an application, or a function without arguments that returns one. Neither may
    be closed, and the module may run no consumers: that is what it is imported for.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise LoadError(f"an application is given as MODULE:NAME, not {name!r}")
    try:
        with importing(module_name):
            found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that this one imports may be missing, too: that is an error of the program.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise LoadError(
            f"there is no module {error.name!r} in this folder or environment"
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise LoadError(f"{module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    if not is_application(found) and callable(found):
        found = _made(found, name)
    if not is_application(found):
        raise LoadError(f"{name} is a {type(found).__name__}, not a client with consumers")
    application: Application = found
    try:
        application._check_open()
    except ClientClosed:
        raise LoadError(below_main(module_name)) from None
    return application


def is_application(found: object) -> bool:
    """Whether it is a client, or an embedded broker, that runs consumers."""
    return isinstance(found, Declaring) and callable(getattr(found, "run", None))


def _made(function: Callable[[], Any], name: str) -> Any:
    if isinstance(function, type) or inspect.iscoroutinefunction(function):
        raise LoadError(f"{name} is neither a client nor a function that returns one")
    return function()


UNUSABLE: Final = 78
"""Exit status of a process that another start would not help: EX_CONFIG of sysexits.h."""
CONNECTED: Final = "connected"
APART: Final = "apart"
STOP: Final = "stop"
"""With the seconds from SIGTERM to the end of the process, at most."""
REASON: Final = "reason"
"""With a JSON text: why the application cannot run."""
TELL_S: Final = 1.0
REASON_CHARS_MAX: Final = 1_024
CLOSE_S: Final = 5.0
"""How long queued messages are sent after the stop."""


def set_up_logs(level: str, form: str) -> None:
    """Send logs to standard error, unless logging is configured already."""
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonFormatter(pid=True))
    else:
        text = "%(asctime)s %(levelname)s [%(process)d] %(message)s"
        handler.setFormatter(logging.Formatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def main(name: str, fd: str, log_level: str, log_form: str) -> int:
    """Run the application `name`; returns the exit status."""
    parent = socket.socket(fileno=int(fd))
    parent.set_inheritable(False)

    def unusable(why: str) -> int:
        """Let the parent, which sees all processes, say it once."""
        _say(parent, REASON, json.dumps(why[:REASON_CHARS_MAX]))
        return UNUSABLE

    # As for a script: the application is in the current folder.
    sys.path.insert(0, os.getcwd())
    try:
        application = load(name)
    except (LoadError, RunOnImport) as error:
        return unusable(str(error))
    except Exception as error:
        traceback.print_exc()
        return unusable(f"{name} cannot be imported: {type(error).__name__}: {error}")
    # After the import: a configuration of the application's own wins.
    set_up_logs(log_level, log_form)
    _say(parent, STOP, str(application._stop_limit_s() + CLOSE_S))
    threading.Thread(target=_tell, args=(parent, application), daemon=True).start()
    try:
        _run(application)
    except ClientError as error:
        # The broker refuses the consumers; see `run` of a worker.
        return unusable(f"{name}: {'; '.join([str(error), *getattr(error, '__notes__', ())])}")
    except NothingToRun as error:
        return unusable(f"{name}: {error}")
    return 0


def _run(application: Any) -> None:
    """Run it, and close it. An embedded broker has nothing to send when it closes."""
    takes = inspect.signature(application.close).parameters
    within = {"within": timedelta(seconds=CLOSE_S)} if "within" in takes else {}
    if not inspect.iscoroutinefunction(application.run):
        with application:
            application.run()
            application.close(**within)
        return

    async def run() -> None:
        async with application:
            await application.run()
            await application.close(**within)

    asyncio.run(run())


def _say(parent: socket.socket, word: str, text: str = "") -> None:
    parent.sendall(f"{word} {text}\n".encode())


def _tell(parent: socket.socket, application: Application) -> None:
    """Tell the parent how the consumers are, until it is gone."""
    parent.settimeout(TELL_S)
    try:
        while True:
            try:
                if not parent.recv(1):
                    break
            except TimeoutError:
                # A parent that is suspended does not read, and is not gone.
                with suppress(TimeoutError):
                    _say(parent, CONNECTED if application.connected() else APART)
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
