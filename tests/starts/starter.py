"""The program that has loaded all of `delaylog` once and forks a process for each start.

    python -P starter.py DESCRIPTOR

The descriptor is a socket whose other end is `warm.py`; it says there what goes over it. The one
rule: what runs in the forked process is `main`, to its very end: threads are joined, handlers of
the end called, streams flushed, and a status comes of what was raised.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

# This is a program: what it needs of the tests is two folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[2]))

from tests.starts.tuned import tune

LOADED = (
    "delaylog.broker.camellia.face",
    "delaylog.broker.camellia.openapi",
    "delaylog.broker.cli.completion",
    "delaylog.broker.cli.access",
    "delaylog.broker.cli.call_verbs",
    "delaylog.broker.cli.clusters",
    "delaylog.broker.cli.dump",
    "delaylog.broker.cli.folders",
    "delaylog.broker.cli.messages.changes",
    "delaylog.broker.cli.messages.lists",
    "delaylog.broker.cli.messages.leases",
    "delaylog.broker.cli.topics",
    "delaylog.broker.history.verb",
    "delaylog.broker.process.serve",
    "delaylog.broker.push.pusher",
    "delaylog.broker.resp.endpoint",
    "delaylog.broker.ui.files",
    "uvloop",
)
REQUEST_BYTES_MAX = 1 << 18
NUMBER = struct.Struct("<q")


def serve(door: socket.socket) -> list[str]:
    """Start processes until nobody asks any more; returns in each of them, with its words."""
    # Ctrl+C reaches the whole group; who asks ends this by closing the door.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fd)
                    tell_end(key.fd, *key.data)
                    continue
                request, descriptors, _, _ = socket.recv_fds(door, REQUEST_BYTES_MAX, 4)
                if not request:
                    os._exit(0)
                *streams, told = descriptors
                pid = os.fork()
                if pid == 0:
                    return become(json.loads(request), streams)
                for stream in streams:
                    os.close(stream)
                os.write(told, NUMBER.pack(pid))
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, told))


def tell_end(descriptor: int, pid: int, told: int) -> None:
    """Say how a process has ended, and only then let its number go."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    with suppress(OSError):  # Nobody may want to know.
        os.write(told, NUMBER.pack(status))
    os.waitpid(pid, 0)
    os.close(told)
    os.close(descriptor)


def become(request: dict[str, object], streams: list[int]) -> list[str]:
    """Take the place of a program that was started so; returns its words."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    for name in request.get("hidden", ()):
        sys.modules[name] = None
    tune()
    sys.argv = request["words"]
    return sys.argv[1:]


def leave(status: int) -> None:
    """End the process without taking apart what is loaded.

    That would copy each page of it, which takes as long as a start.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    from delaylog.broker.cli import main

    gc.collect()
    # What is loaded stays; the collections of the forked processes need not go through it.
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        status = main()
    except SystemExit as ended:  # Of argparse, which has printed why.
        status = int(ended.code or 0)
    leave(status)
