"""Serves the dashboard beside an embedded broker, on a thread with an event loop of its own.

Calls go to the handlers that all faces share, so the page shows the same as one of `delaylog serve`
does, on the clock of the embedded broker. There are no principals: every process that can connect
to the port may make every call, so the address is loopback unless the program names another one,
and requests of other pages are refused as a server refuses them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import orjson
from aiohttp import web

from delaylog.broker.calls.answers import Answer, Problem, problem_answer, problem_of
from delaylog.broker.calls.context import JSON
from delaylog.broker.embedded.calls import answer_to
from delaylog.broker.embedded.node import NodeThread
from delaylog.broker.engine.access.grants import RIGHTS
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.host.waiters import OpenStreams, StopsError
from delaylog.broker.process.leaves import leaf_pages, needed
from delaylog.broker.web.request_heads import RequestChecks
from delaylog.broker.web.responses import send_pieces

SESSION: Final = "/v1/session"
"""The call for the viewer's rights; an embedded broker has no sessions, so it is answered here."""
PORT_MAX: Final = 65_535
STOP_SECONDS: Final = 1.0
"""How long requests in progress may take when the broker is closed."""
Carry = Callable[[str, str, Mapping[str, str], bytes], Awaitable[Answer]]
log = logging.getLogger("delaylog.embedded")


class UiThread:
    """The dashboard of one embedded broker."""

    def __init__(self, node_thread: NodeThread, host: str, port: int) -> None:
        """Serve until `close`. Raises OSError if the address cannot be used, ValueError if
        the port is not from 0 to 65535, TypeError if it is no integer or the host no text,
        ImportError if the dashboard is not installed.
        """
        files = needed("dashboard").files
        assert files is not None, "the dashboard is files"
        self._files = files()
        self._pages = leaf_pages()
        if type(port) is not int:
            raise TypeError(f"port is {port!r}: give an integer, such as 0 (any free one)")
        if type(host) is not str:
            raise TypeError(f"host is {host!r}: give an address or a name as a str")
        if not 0 <= port <= PORT_MAX:
            raise ValueError(f"port is {port}: give 0 (any free one) to {PORT_MAX}")
        self._node_thread = node_thread
        self._checks = RequestChecks([host])
        self._streams = OpenStreams()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(host, port, started), name="delaylog-ui", daemon=True
        )
        self._thread.start()
        try:
            bound = started.result()
        except BaseException:
            # Ctrl-C, too: the thread must not serve then.
            if not started.cancel():
                self.close()
            self._thread.join()
            raise
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{bound}{self._files.home}"

    def close(self) -> None:
        """Stop serving. Does nothing the second time."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            # The loop is closed if the thread ends by itself.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self, host: str, port: int, started: Future[int]) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve(host, port, started))
        except BaseException as error:
            # The thread that waits for the address gets it: OSError, or UnicodeError of a host.
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, host: str, port: int, started: Future[int]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        async def carry(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
            return await self._node_thread.wait(self._answer(method, path, headers, body))

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._respond(request, carry)

        runner = web.ServerRunner(
            web.Server(handle, access_log=None), shutdown_timeout=STOP_SECONDS
        )
        try:
            await runner.setup()
            await web.TCPSite(runner, host, port).start()
            if started.set_running_or_notify_cancel():
                started.set_result(int(runner.addresses[0][1]))
                await self._stop.wait()
        finally:
            self._streams.end_all(StopsError("the broker was closed"))
            await runner.cleanup()

    async def _respond(self, request: web.BaseRequest, carry: Carry) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        try:
            self._checks.check(request.headers)
            answer = self._files.answer_of(request.method, path, request.headers)
            if answer is None and path == SESSION and request.method == "GET":
                answer = Answer(orjson.dumps(_who()), JSON)
            page = self._pages.get(path)
            if page is not None and request.method == "GET":
                live = page.answer_of(
                    query, lambda each: carry("GET", each, {}, b""), self._streams
                )
                return await send_pieces(request, live, "", log.error)
            if answer is None:
                answer = await carry(
                    request.method, request.raw_path, request.headers, await request.read()
                )
        except EngineError as refusal:
            answer = problem_answer(refusal)
        except web.HTTPRequestEntityTooLarge:
            answer = problem_answer(Problem("too_large", "a request has at most 1 MiB here"))
        except Exception:
            log.exception("a request of the dashboard failed")
            answer = problem_answer(Problem("not_ready", "the broker failed or was closed"))
        sent = {"Content-Type": answer.kind, **answer.headers}
        return web.Response(body=answer.body, status=answer.status, headers=sent)

    async def _answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        """A call of the API, answered also if it is refused."""
        try:
            return await answer_to(self._node_thread.node, method, path, headers, body)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            return problem_answer(problem)


def _who() -> dict[str, Any]:
    """The session of a caller where no authentication is required."""
    # It has no metrics.
    rights = ",".join(sorted(RIGHTS - {"metrics"}))
    return {"principal": None, "grants": [rights], "expires_at_ms": None, "csrf": None}
