"""The names that packages offer: each is there, in order, and another one is a decision."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import delaylog
import delaylog.client

PEERS = "Levels PeerConfig PeerCounts PeerHost PeerLimits PeerTls PeerTraffic PeerTransport Refused"
QUEUES = """
DynoMessage DynoQueue DynoStats Figures FixedTimeMessage Predicate PriorityMessage QueuePort
RangeMergeMessage RmqConsumer RmqDeadLetter RmqDelivery RmqMessage RmqProducer RolledBack RoundRobin
ShardStrategy TopicKind TopicMismatch by_id open_rmq_topic
"""
PACKAGES = {
    "delaylog.broker.cluster.peers": PEERS.split(),
    "delaylog.client": 65,
    "delaylog.client.job_systems": ["register_kombu_transport"],
    "delaylog.client.queues": QUEUES.split(),
    "delaylog.replication.raftos_oracle": 5,
}
"""The names, or how many there are; those of the SDK are held by its reference (tests/docs)."""


@pytest.mark.parametrize(("package", "names"), PACKAGES.items())
def test_the_names_of_a_package(package: str, names: list[str] | int) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert names in (module.__all__, len(module.__all__))


def test_delaylog_has_all_names_of_the_client() -> None:
    own = {"AsyncEmbeddedBroker", "EmbeddedBroker", "ManualClock", "WallClock"}
    own |= {"__version__", "open", "open_async"}
    assert set(delaylog.__all__) == own | set(delaylog.client.__all__)
    assert delaylog.__all__ == sorted(delaylog.__all__) == dir(delaylog)
    for name in delaylog.client.__all__:
        assert getattr(delaylog, name) is getattr(delaylog.client, name)
    with pytest.raises(AttributeError, match="'delaylog' has no attribute 'Customer'"):
        delaylog.Customer  # noqa: B018


def loaded_by(program: str) -> set[str]:
    """The modules that a process has loaded after this program."""
    said = f"import sys\n{program}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_delaylog_loads_nothing_of_it() -> None:
    """Also a look at a name that it lacks loads nothing."""
    loaded = loaded_by("import delaylog; hasattr(delaylog, 'nothing')")
    assert {name for name in loaded if name.startswith("delaylog")} == {"delaylog"}
    assert not loaded & {"asyncio", "dataclasses", "inspect", "logging"}


@pytest.mark.parametrize(
    ("names", "needless"),
    [
        ("Client", ("delaylog.client._async.client", "asyncio", "subprocess")),
        ("AsyncClient", ("delaylog.client._sync.client",)),
        ("NotReached, Sent", ("delaylog.client.sending", "asyncio", "ssl")),
    ],
    ids=["Client", "AsyncClient", "values and errors"],
)
def test_importing_a_client_loads_what_it_needs(names: str, needless: tuple[str, ...]) -> None:
    """In threads nothing of asyncio; never the broker, or the library of an extra."""
    loaded = loaded_by(f"from delaylog import {names}")
    parts = ("delaylog.broker", "delaylog.replication", "delaylog.wheel")
    assert [name for name in loaded if name.startswith(parts)] == []
    assert loaded & {*needless, "aiohttp", "numpy", "orjson", "pyarrow", "rich"} == set()


def test_a_name_of_the_client_comes_from_the_module_that_type_checkers_read() -> None:
    tree = ast.parse(inspect.getsource(delaylog.client))
    (block,) = [each for each in tree.body if isinstance(each, ast.If)]
    read = {
        name.name: each.module
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for name in each.names
    }
    looked_up = delaylog.client._MODULES
    assert read == {name: f"delaylog.client.{module}" for name, module in looked_up.items()}
    assert sorted(read) == delaylog.client.__all__ == dir(delaylog.client)
    with pytest.raises(AttributeError, match=r"'delaylog\.client' has no attribute"):
        delaylog.client.Customer  # noqa: B018
