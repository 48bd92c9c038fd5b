"""One process of a pool: `python -m delaylog.client.pool.child APP FD LOG_LEVEL`.

It imports the application and runs it until SIGTERM. The socket FD joins it to the parent: each
second it tells whether its consumers are connected, and if the parent is gone, it ends as after
SIGTERM.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from typing import Any, Final

from delaylog.client.errors import ClientError
from delaylog.client.pool.loading import Application, LoadError, load
from delaylog.client.workers.declaring import NothingToRun

UNUSABLE: Final = 78
"""Exit status of a process that another start would not help: EX_CONFIG of sysexits.h."""
CONNECTED: Final = b"c"
APART: Final = b"a"
TELL_S: Final = 1.0

logger = logging.getLogger("delaylog.worker")


def main(name: str, fd: str, log_level: str) -> int:
    """Run the application `name`; returns the exit status."""
    # As for a script: the application is in the current folder.
    sys.path.insert(0, os.getcwd())
    try:
        application = load(name)
    except LoadError as error:
        print(f"delaylog worker: {error}", file=sys.stderr)
        return UNUSABLE
    except Exception:
        traceback.print_exc()
        print(f"delaylog worker: {name} cannot be imported, see above", file=sys.stderr)
        return UNUSABLE
    # After the import: a configuration of the application's own wins.
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s [%(process)d] %(message)s"
    )
    parent = socket.socket(fileno=int(fd))
    parent.set_inheritable(False)
    threading.Thread(target=_tell, args=(parent, application), daemon=True).start()
    try:
        _run(application)
    except ClientError as error:
        # The broker refuses the consumers; see `run` of a worker.
        logger.error("%s: %s", name, "; ".join([str(error), *getattr(error, "__notes__", ())]))
        return UNUSABLE
    except NothingToRun as error:
        logger.error("%s: %s", name, error)
        return UNUSABLE
    return 0


def _run(application: Any) -> None:
    """Run it, and close it."""
    if not inspect.iscoroutinefunction(application.run):
        with application:
            application.run()
        return

    async def run() -> None:
        async with application:
            await application.run()

    asyncio.run(run())


def _tell(parent: socket.socket, application: Application) -> None:
    """Tell the parent how the consumers are, until it is gone."""
    parent.settimeout(TELL_S)
    try:
        while True:
            try:
                if not parent.recv(1):
                    break
            except TimeoutError:
                parent.send(CONNECTED if application.connected() else APART)
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
