"""Tests that are coroutines: a conftest.py imports the hook to run those of its folder."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest

TEST_SECONDS = 180
"""After this time a test has failed; no promise of a test is told by it."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test on the loop of its fixture `make_loop`, asyncio's without one.

    Its fixtures that are asynchronous context managers are entered there first, and left at the
    end. The loop's exception handler must not have been called.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    values = pyfuncitem.funcargs
    arguments = {name: values[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, c: complaints.append(c))
        async with asyncio.timeout(TEST_SECONDS), AsyncExitStack() as stack:
            for value in arguments.values():
                if isinstance(value, AbstractAsyncContextManager):
                    await stack.enter_async_context(value)
            await pyfuncitem.obj(**arguments)
            # Callbacks that the test has scheduled.
            await asyncio.sleep(0)

    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with asyncio.Runner(loop_factory=values.get("make_loop")) as runner:
        runner.run(run())
    assert not complaints, complaints
    return True
