"""Drivers of calls: run a call's coroutine and carry out its waits, on a thread or an event loop.

A call holds the broker's lock while it runs and never while it waits. Errors of the engine and of
storage become those of the client: a refusal is an ApiError with code and facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import sleep
from typing import Any, TypeVar

from delaylog.broker.calls.problems import Problem, document_of, problem_of
from delaylog.broker.embedded.closed import ClosedError
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.broker.embedded.waits.steps import Begun, Job, News, Pause, Safe, Step
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.host.commits.position_waiters import finish
from delaylog.client.errors import ApiError, api_error
from delaylog.storage.errors import DISTRUSTED

Answer = TypeVar("Answer")
Call = Coroutine[Step, None, Answer]


def run(node: EmbeddedNode, call: Call[Answer]) -> Answer:
    """Run a call on this thread. Raises ApiError, ClosedError."""
    try:
        node.enter()
    except ClosedError:
        call.close()
        raise
    locked, error = True, None
    try:
        while True:
            step = _turn(node, call, error)
            error = None
            if isinstance(step, News):
                node.wait_for_news(step.seconds)
                continue
            if isinstance(step, (Safe, Begun)) and node.written(step.position):
                continue
            if isinstance(step, Begun):
                node.commits.leave()
                continue
            node.lock.release()
            locked = False
            try:
                _wait(node, step)
            except Exception as failure:
                error = failure
            node.enter()
            locked = True
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    except Exception as failure:
        raise translated(node, failure) from failure
    finally:
        call.close()
        if locked:
            node.lock.release()


def _turn(node: EmbeddedNode, call: Call[Any], error: BaseException | None) -> Step:
    """Resume a call; return what it waits for. At its end StopIteration has its answer."""
    try:
        return call.send(None) if error is None else call.throw(error)
    except Exception:
        raise
    except BaseException as interruption:
        # Ctrl-C can interrupt it anywhere: the log is intact, the state in memory may not be.
        node.fail(interruption)
        raise


def _wait(node: EmbeddedNode, step: Step) -> None:
    if isinstance(step, Safe):
        node.commits.reach(step.position)
    elif isinstance(step, Job):
        step.call()
    else:
        assert isinstance(step, Pause)
        # Other threads run only once this one also releases the interpreter lock.
        sleep(step.seconds)


def translated(node: EmbeddedNode, error: Exception) -> Exception:
    """The client's error for an error of the engine or of storage; other errors stay the same."""
    if isinstance(error, DISTRUSTED):
        # No call may be answered from this disk any more.
        node.fail(error)
        problem: EngineError | None = Problem("not_ready", f"the broker stops: {error}")
    else:
        problem = problem_of(error)
    return error if problem is None else refusal(problem)


def refusal(problem: EngineError) -> ApiError:
    """The client's exception for a refusal."""
    document = document_of(problem)
    wait_s = document.get("retry_after_s")
    return api_error(document["status"], document, None if wait_s is None else float(wait_s))


class LoopDriver:
    """Runs calls on one event loop, which never blocks for the disk."""

    def __init__(self, node: EmbeddedNode, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="delaylog-call")
        self._waiting: set[asyncio.Future[None]] = set()
        node.listen(self._news)

    async def run(
        self, call: Call[Answer], *, give_back: Callable[[Answer], Call[Any]] | None = None
    ) -> Answer:
        """Run a call. Raises ApiError, ClosedError; may be cancelled while it waits.

        `give_back` is for a call that leases messages. Cancelled while it waits for messages, it
        has leased none. Cancelled while it waits for the log, it has, and they are given back:
        nobody else would get them before their lease ends.
        """
        node = self._node
        error: BaseException | None = None
        step: Step | None = None
        try:
            while True:
                node.enter()
                try:
                    step = _turn(node, call, error)
                    if isinstance(step, News):
                        seconds = node.seconds_to_wait(step.seconds)
                        told = self._expect()
                finally:
                    node.lock.release()
                error = None
                try:
                    if isinstance(step, News):
                        await self._until_told(told, seconds)
                    else:
                        await self._wait(step)
                except Exception as failure:
                    error = failure
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        except asyncio.CancelledError:
            if give_back is not None and isinstance(step, Safe):
                # Neither of these two calls has to wait.
                with suppress(ClosedError):
                    await self.run(give_back(await self.run(call)))
            raise
        except Exception as failure:
            if isinstance(failure, ClosedError):
                raise
            with node.lock:
                known = translated(node, failure)
            raise known from failure
        finally:
            call.close()

    async def _wait(self, step: Step) -> None:
        if isinstance(step, Safe):
            commits = self._node.commits
            if commits.position() >= step.position:
                return
            if self._node.manual:
                # There is no background thread that commits.
                await self._loop.run_in_executor(self._jobs, commits.reach, step.position)
            else:
                done: asyncio.Future[None] = self._loop.create_future()
                commits.when_durable(step.position, partial(self._told, done))
                await done
        elif isinstance(step, Begun):
            self._node.commits.leave()
        elif isinstance(step, Job):
            await self._loop.run_in_executor(self._jobs, step.call)
        else:
            assert isinstance(step, Pause)
            await asyncio.sleep(step.seconds)

    def _told(self, done: asyncio.Future[None], error: BaseException | None) -> None:
        # This runs on the thread that committed. If the loop is closed, nothing waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(finish, done, error)

    # ------------------------------------------------------------------ news

    def _expect(self) -> asyncio.Future[None]:
        """A future that the next news completes. Called under the lock, so that none is missed."""
        told: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(told)
        return told

    async def _until_told(self, told: asyncio.Future[None], seconds: float) -> None:
        try:
            await asyncio.wait([told], timeout=seconds)
        finally:
            self._waiting.discard(told)

    def _news(self) -> None:
        if self._waiting:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell_all)

    def _tell_all(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for told in waiting:
            finish(told)

    def close(self) -> None:
        """Stop listening for news, and run no more jobs."""
        self._node.unlisten(self._news)
        self._jobs.shutdown(wait=False)
