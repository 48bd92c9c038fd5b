"""`delaylog serve`: open the folder, recover, listen, serve until a signal, shut down cleanly.

A service manager such as systemd is told when the broker is ready, reloads and stops. The protocol
is that of sd_notify(3): a datagram of lines `NAME=value` to the socket that the variable
NOTIFY_SOCKET names. Without the variable nothing is sent.

A process that dies inside native code leaves its traceback. Files are read through memory maps, so
a truncated file or a failing disk may end the process by a signal. Python then writes its traceback
to `DIR/crash`, and the next start logs it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, MutableMapping
from typing import Any, Final, NoReturn

import orjson

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.host.config import Config
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system import descriptors, process_memory
from delaylog.broker.host.system.folder_lock import lock_folder, unlock_folder
from delaylog.broker.host.watch.logs import logs_are_json
from delaylog.broker.process.exit_codes import End, ExitCode, end_of
from delaylog.broker.process.folder_kind import check_folder
from delaylog.broker.process.parts import Parts
from delaylog.replication.errors import ReplicationError
from delaylog.storage.errors import StorageError
from delaylog.storage.files.file_system import FILE_MODE, hold_spares

# ---------------------------------------------------------------------------- traces of crashes

_READ_BYTES: Final = 65_536

_crash_log = logging.getLogger("delaylog.crash")


def watch_crashes(folder: str) -> None:
    """Log the last crash of a broker on this folder, and record the next one.

    The caller must hold the folder's lock. If the file cannot be written, this only logs a warning.
    """
    path = f"{folder}/crash"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        left = os.read(fd, _READ_BYTES).decode(errors="replace")
        if left.strip():
            _crash_log.error("the last process died in native code", extra={"trace": left})
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError as error:
        _crash_log.warning("a crash could not be recorded", extra={"why": str(error)})
        return
    faulthandler.enable(fd, all_threads=False)


# -------------------------------------------------------------------------- the service manager

VARIABLE: Final = "NOTIFY_SOCKET"

log = logging.getLogger("delaylog.serve")


class ServiceManager:
    """The service manager that has started this process, if any."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Takes the variable out of `environ`, so that children do not notify."""
        self._address = environ.pop(VARIABLE, "")
        if self._address.startswith("@"):
            # A name in the kernel's abstract namespace.
            self._address = f"\0{self._address[1:]}"

    @property
    def listens(self) -> bool:
        """Whether there is one to notify."""
        return bool(self._address)

    def notify(self, **facts: object) -> None:
        """Send facts such as `READY=1`. A failure is logged, and no reason to end."""
        if not self._address:
            return
        lines = "\n".join(f"{name}={value}" for name, value in facts.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(lines.encode(), self._address)
        except OSError as error:
            name = self._address.replace("\0", "@", 1)
            log.warning("the service manager at %s cannot be notified: %s", name, error)


# -------------------------------------------------------------------------------------- serving

SWITCH_SECONDS = 0.0005
"""Switch interval of threads; with Python's default the loop notices an fsync's end 5 ms late."""

READY_SECONDS: Final = 30.0
"""How long the service manager waits for a member that finds no leader. After that it is told that
the node is ready, since it may start the nodes of a cluster one after the other."""
READY_LOOK_SECONDS: Final = 0.1


def _end_on_bugs(
    loop: asyncio.AbstractEventLoop, on_fatal: Callable[[BaseException], None]
) -> None:
    """End the node on an error in a callback of this package.

    The callback did not finish its work, and tasks that wait for that work would wait for ever.
    Errors of connections and their requests do not end the node.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception) and _is_ours(error):
            on_fatal(error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def _is_ours(error: BaseException) -> bool:
    """Whether the loop called a function of this package, by the outermost frame above the loop."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("asyncio", "uvloop")):
            return module.startswith("delaylog.")
    return False


async def _serve(config: Config, *, as_json: bool) -> int:
    stop, failed = asyncio.Event(), asyncio.Event()
    failure: list[BaseException] = []
    manager = ServiceManager()

    def on_fatal(error: BaseException) -> None:
        if not failure:
            failure.append(error)
            log.critical("the node stops", exc_info=error)
            parts.note_damage(error)
        failed.set()

    def reload() -> None:
        now_us = int(REAL.steady_s() * 1_000_000)
        manager.notify(RELOADING=1, MONOTONIC_USEC=now_us)
        parts.reloader.reload_soon().add_done_callback(lambda _: manager.notify(READY=1))

    loop = asyncio.get_running_loop()
    _end_on_bugs(loop, on_fatal)
    parts = Parts(config, on_fatal)
    # Until the start is complete a signal ends the process at once: everything is in the log. An
    # exception instead, KeyboardInterrupt, is lost when the loop calls the handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        # Nothing is flushed: the signal may have come in the middle of a write.
        signal.signal(number, lambda _, __: os._exit(ExitCode.STOPPED))
    # A SIGHUP is kept until the start is complete: its files may have been read before it came.
    asked_early: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: asked_early.append(number))
    try:
        await parts.open()
        listening = await parts.start()
    except Exception as error:
        # As below, the loop is not closed: background work may have begun, in threads too.
        _end_by(error)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    if asked_early:
        reload()
    if as_json:
        print(orjson.dumps({"ready": listening}).decode(), flush=True)
    else:
        print("ready", *(f"{name}={at}" for name, at in listening.items()), flush=True)
    log.info("serving", extra={"http": listening["http"], "data_dir": config.data_dir})
    telling = loop.create_task(_tell_ready(manager, parts.node))

    async def serve_until_told() -> None:
        await stop.wait()
        log.info("stopping")
        telling.cancel()
        manager.notify(STOPPING=1)
        await parts.stop()

    # Stop waiting also when the disk fails during the shutdown.
    served = loop.create_task(serve_until_told())
    await asyncio.wait([served, loop.create_task(failed.wait())], return_when="FIRST_COMPLETED")
    if not failure and (broken := served.exception()) is not None:
        on_fatal(broken)
    if failure:
        # The disk or the state cannot be trusted: exit at once, since everything is in the log.
        # The loop is not closed: what it would still start while closing, for example an incoming
        # connection, would print errors after this line.
        end = end_of(failure[0], has_peers=parts.has_peers)
        _say(f"the node stops: {end.line(failure[0])}", end)
        _leave(end.code)
    log.info("stopped")
    return 0


async def _tell_ready(manager: ServiceManager, node: ServingNode) -> None:
    """Tell the service manager that the node takes work, or why it does not in READY_SECONDS."""
    cluster, waited_s, why = node.role.cluster, 0.0, None
    while manager.listens and cluster is not None and waited_s < READY_SECONDS:
        before, why = why, cluster.not_ready()
        if why is None:
            break
        if why != before:
            manager.notify(STATUS=why)
        await asyncio.sleep(READY_LOOK_SECONDS)
        waited_s += READY_LOOK_SECONDS
    manager.notify(READY=1, STATUS=why or "serving")


def _say(text: str, end: End) -> None:
    """The last line of a node that fails, in the form of its log."""
    if logs_are_json():
        log.critical(text, extra={"status": int(end.code), "end": end.code.name.lower()})
    else:
        print(f"delaylog: {text}", file=sys.stderr)


def serve(config: Config, *, as_json: bool = False) -> int:
    """Run a node; returns the exit status. `as_json`: the ready line is JSON."""
    try:
        return _run(config, as_json=as_json)
    except Exception as error:
        _end_by(error)


def _end_by(error: Exception) -> NoReturn:
    """End the process, which cannot serve its folder, and say why."""
    # Every expected error says in one line what is wrong.
    expected = isinstance(error, (ConfigError, ReplicationError, StorageError, OSError))
    if not expected:
        log.critical("the data folder cannot be served", exc_info=error)
    end = end_of(error)
    _say(end.line(error), end)
    _leave(end.code)


def _run(config: Config, *, as_json: bool) -> int:
    check_folder(config.data_dir, member=config.cluster is not None)
    lock = lock_folder(config.data_dir)
    watch_crashes(config.data_dir)
    process_memory.tune()
    process_memory.start_keeper()
    descriptors.raise_process_limit()
    hold_spares()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        try:
            import uvloop
        except ImportError:
            return asyncio.run(_serve(config, as_json=as_json))
        return uvloop.run(_serve(config, as_json=as_json))
    finally:
        unlock_folder(lock)


def _leave(status: int) -> NoReturn:
    """End the process without joining threads, which may hang in calls to a failed disk."""
    sys.stderr.flush()
    os._exit(status)
