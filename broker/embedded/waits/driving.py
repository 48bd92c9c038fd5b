"""Drivers of calls: what a call waits for, waited for by a thread or by an event loop.

A call holds the broker's lock while it runs and never while it waits. How it fails is said here as
the client does: refusals of the broker are the client's own exceptions, with code and facts.
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
    """Carry a call out on this thread. Raises ApiError, ClosedError."""
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
    """Let a call go on to where it waits. StopIteration has its answer."""
    try:
        return call.send(None) if error is None else call.throw(error)
    except Exception:
        raise
    except BaseException as interruption:
        # Ctrl-C between any two steps of it: the log is whole, and what is in memory may be not.
        node.fail(interruption)
        raise


def _wait(node: EmbeddedNode, step: Step) -> None:
    if isinstance(step, Safe):
        node.commits.reach(step.position)
    elif isinstance(step, Job):
        step.call()
    else:
        assert isinstance(step, Pause)
        # Nobody else runs before this thread lets go of the interpreter as well.
        sleep(step.seconds)


def translated(node: EmbeddedNode, error: Exception) -> Exception:
    """The client's error for one of the layers below; itself where it is none of theirs."""
    if isinstance(error, DISTRUSTED):
        # Whoever met it: nothing more may be answered from this disk.
        node.fail(error)
        problem: EngineError | None = Problem("not_ready", f"the broker stops: {error}")
    else:
        problem = problem_of(error)
    return error if problem is None else refusal(problem)


def refusal(problem: EngineError) -> ApiError:
    """What a client raises for a refusal."""
    document = document_of(problem)
    wait_s = document.get("retry_after_s")
    return api_error(document["status"], document, None if wait_s is None else float(wait_s))


class LoopDriver:
    """Carries calls out on one event loop, which is never blocked by a disk."""

    def __init__(self, node: EmbeddedNode, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="delaylog-call")
        self._waiting: set[asyncio.Future[None]] = set()
        node.listen(self._news)

    async def run(
        self, call: Call[Answer], *, give_back: Callable[[Answer], Call[Any]] | None = None
    ) -> Answer:
        """Carry a call out. Raises ApiError, ClosedError; may be cancelled where it waits.

        `give_back` is for a call that leases: cancelled while it waits for messages it has taken
        nothing. Once it waits for the log it has, and nobody else would hear of them before their
        lease ends.
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
                # Neither of the two waits for anything.
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
                # Nobody commits by itself there.
                await self._loop.run_in_executor(self._jobs, commits.reach, step.position)
            else:
                done: asyncio.Future[None] = self._loop.create_future()
                commits.tell(step.position, partial(self._told, done))
                await done
        elif isinstance(step, Begun):
            self._node.commits.leave()
        elif isinstance(step, Job):
            await self._loop.run_in_executor(self._jobs, step.call)
        else:
            assert isinstance(step, Pause)
            await asyncio.sleep(step.seconds)

    def _told(self, done: asyncio.Future[None], error: BaseException | None) -> None:
        # On the thread that committed; a loop that has closed waits for nothing.
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
        """Drive no more calls."""
        self._node.unlisten(self._news)
        self._jobs.shutdown(wait=False)
