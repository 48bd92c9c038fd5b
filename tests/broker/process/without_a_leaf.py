"""A program: the core imports, serves and delivers. Its argument is a folder that it may use.

Tests run it where a leaf of the package is missing. It prints the modules of delaylog that it has
loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import pkgutil
import sys
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from urllib.request import Request, urlopen

import delaylog
from delaylog.broker.cli import main
from delaylog.broker.host.config import load_config
from delaylog.broker.leaves import FOLDERS
from delaylog.broker.process.parts import Parts

LEAVES = (
    *(f"delaylog.broker.{folder}" for folder in (*FOLDERS, "keyspace")),
    *(f"delaylog.client.{folder}" for folder in ("job_systems", "queues", "spark")),
)
OPTIONAL = ("delaylog.replication.raftos_oracle", "delaylog.broker.__main__")
"""The first needs packages of an extra, the second runs when it is imported."""


def import_core() -> None:
    """Import each module that is in no leaf."""
    for module in pkgutil.walk_packages(delaylog.__path__, "delaylog.", onerror=lambda _: None):
        if not module.name.startswith((*LEAVES, *OPTIONAL)):
            import_module(module.name)


def show_help() -> None:
    """The help of the command line and of each verb."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(["--help"])
    assert "serve" in out.getvalue()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(["completion", "bash"])
    assert "_delaylog_serve" in out.getvalue()


def embed(folder: Path) -> None:
    """A message in an embedded broker, and in the next one of its folder."""
    for _ in range(2):
        with delaylog.open(folder, fsync="never") as queue:
            queue.send("mails", "hello")
            (message,) = queue.receive("mails", wait=timedelta(seconds=5))
            queue.ack(message)


async def serve(folder: Path) -> None:
    """A message over HTTP, and the pages for operations."""
    words = {"data_dir": str(folder), "http": "127.0.0.1:0"}
    parts = Parts(load_config(words, {}), on_fatal=lambda error: print(error, file=sys.stderr))
    await parts.open()
    url = f"http://{(await parts.start())['http']}"

    def ask(path: str, body: bytes | None = None) -> bytes:
        kind = {"Content-Type": "application/json"}
        with urlopen(Request(url + path, body, kind), timeout=10) as answer:
            text: bytes = answer.read()
        return text

    await asyncio.to_thread(ask, "/v1/topics/mails/messages", b'{"body": "hello"}')
    got = await asyncio.to_thread(ask, "/v1/topics/mails/receive", b'{"wait_ms": 5000}')
    assert b"hello" in got
    for page in ("/", "/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert await asyncio.to_thread(ask, page)
    await parts.stop()


import_core()
show_help()
embed(Path(sys.argv[1]) / "embedded")
asyncio.run(serve(Path(sys.argv[1]) / "served"))
print(*(name for name in sys.modules if name.startswith("delaylog")))
