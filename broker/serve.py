"""`delaylog serve`: open the folder, recover, listen, serve until a signal, end cleanly."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

from delaylog.broker import crash_trace, process_memory
from delaylog.broker.clock import BrokerClock
from delaylog.broker.config import Config, ConfigError
from delaylog.broker.engine import Engine
from delaylog.broker.metrics import Metrics
from delaylog.broker.node import Node
from delaylog.broker.web.app import HttpFace
from delaylog.storage.errors import CorruptionError, StorageError
from delaylog.storage.file_system import OsFileSystem

SWITCH_SECONDS = 0.0005
"""Threads hand the interpreter over this fast, or an fsync's end is seen 5 ms late."""

DAMAGE_HINT = "restore the file from a backup; `delaylog verify` says what else is damaged"

log = logging.getLogger("delaylog.serve")


def _lock(folder: str) -> int:
    """One process per data folder."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(f"data-dir {folder} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise ConfigError(f"data folder {folder} is in use by another process") from None
    return fd


def _raise_file_limit() -> int:
    """Connections and hours need descriptors: take what the system allows; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)


async def _serve(config: Config) -> int:
    clock = BrokerClock(
        on_step=lambda ms: log.warning("the wall clock stepped", extra={"step_ms": ms})
    )
    engine = Engine(
        OsFileSystem(),
        config.data_dir,
        now_ms=clock.now_ms(),
        random=Random(),
        limits=config.limits,
        progress=log.info,
    )
    stop = asyncio.Event()
    failure: list[BaseException] = []

    def on_fatal(error: BaseException) -> None:
        if not failure:
            failure.append(error)
            hint = {"do": DAMAGE_HINT} if isinstance(error, CorruptionError) else {}
            log.critical("the node stops", exc_info=error, extra=hint)
        stop.set()

    node = Node(engine, clock, on_fatal, fsync=config.fsync)
    face = HttpFace(node, Metrics(node))
    node.start()
    try:
        port = await face.start(config.http_host, config.http_port)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {config.http_host}:{config.http_port}: {error.strerror}"
        ) from None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host = f"[{config.http_host}]" if ":" in config.http_host else config.http_host
    print(f"ready http={host}:{port}", flush=True)
    log.info("serving", extra={"http": f"{host}:{port}", "data_dir": config.data_dir})
    await stop.wait()
    if failure:
        # Its disk or its state cannot be trusted: leave at once, the log has everything.
        return 1
    log.info("stopping")
    await face.close_listener()
    node.waiters.close()
    await face.stop()
    await node.stop()
    log.info("stopped")
    return 0


def serve(config: Config) -> int:
    """Run a node; returns the exit status."""
    lock = _lock(config.data_dir)
    crash_trace.watch(config.data_dir)
    process_memory.tune()
    process_memory.start_keeper()
    files = _raise_file_limit()
    # A quarter of the descriptors for hours, the rest for connections and the log.
    open_hours = max(config.limits.open_hours_max, min(files // 20, 1_024))
    config = replace(config, limits=replace(config.limits, open_hours_max=open_hours))
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        try:
            import uvloop
        except ImportError:
            status = asyncio.run(_serve(config))
        else:
            status = uvloop.run(_serve(config))
    except StorageError as error:
        log.critical("the data folder cannot be served", extra={"why": str(error)})
        hint = f"; {DAMAGE_HINT}" if isinstance(error, CorruptionError) else ""
        print(f"delaylog: {error}{hint}", file=sys.stderr)
        status = 1
    finally:
        os.close(lock)
    if status:
        # Threads may hang in a failed disk's calls; nothing they could still do is wanted.
        sys.stderr.flush()
        os._exit(status)
    return status
