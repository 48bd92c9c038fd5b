"""A cluster of three real processes for every test that needs one, and tests that are coroutines.

Starting a cluster costs seconds, so a module shares one; a test that kills a node starts it again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes

TEST_SECONDS = 60


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

    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with asyncio.Runner(loop_factory=values.get("make_loop")) as runner:
        runner.run(run())
    assert not complaints, complaints
    return True


@pytest.fixture(scope="module")
def start_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ThreeNodes]]:
    """Makes clusters that are killed at the end of the module."""
    made: list[ThreeNodes] = []

    def start(**options: Any) -> ThreeNodes:
        nodes = ThreeNodes(tmp_path_factory.mktemp("cluster"), **options)
        made.append(nodes)
        nodes.start(new_cluster=True)
        # The first leader puts the members into the log, in a second epoch of its own.
        nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
        return nodes

    yield start
    for nodes in made:
        nodes.clean_up()


@pytest.fixture(scope="module")
def three(start_three: Callable[..., ThreeNodes]) -> Iterator[ThreeNodes]:
    """The module's cluster, all nodes up and one of them leading. Its nodes leave cleanly, and none
    has met an error that it did not expect.
    """
    nodes = start_three()
    nodes.leader()
    yield nodes
    assert set(nodes.stop()) == {0}, nodes.tails()
    for node in NODES:
        assert not [line for line in nodes.log_lines(node) if "exception" in line]
