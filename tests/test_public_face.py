"""The names that packages offer: each is there, in order, and another one is a decision."""

from __future__ import annotations

import importlib
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
    "delaylog.broker.cluster.peers": [*PEERS.split(), "Transport"],
    "delaylog.client": 61,
    "delaylog.client.job_systems": ["register_kombu_transport"],
    "delaylog.client.queues": QUEUES.split(),
    "delaylog.replication": 23,
    "delaylog.replication.raftos_oracle": 6,
}
"""The names, or how many there are; those of the SDK are held by its reference (tests/docs)."""


@pytest.mark.parametrize(("package", "names"), PACKAGES.items())
def test_the_names_of_a_package(package: str, names: list[str] | int) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert names in (module.__all__, len(module.__all__))


def test_delaylog_has_all_names_of_the_client() -> None:
    own = {"ManualClock", "WallClock", "__version__", "open", "open_async"}
    assert set(delaylog.__all__) == own | set(delaylog.client.__all__)
    assert delaylog.__all__ == sorted(delaylog.__all__) == dir(delaylog)
    for name in delaylog.client.__all__:
        assert getattr(delaylog, name) is getattr(delaylog.client, name)
    with pytest.raises(AttributeError, match="'delaylog' has no attribute 'Customer'"):
        delaylog.Customer  # noqa: B018


def test_importing_delaylog_loads_nothing_of_it() -> None:
    """Also a look at a name that it lacks loads nothing."""
    said = (
        "import sys, delaylog; hasattr(delaylog, 'nothing');"
        "print([name for name in sys.modules if name.startswith('delaylog')])"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "['delaylog']\n"
