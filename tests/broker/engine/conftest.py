"""Fixtures: hosts of engines, a follower, and slices so small that everything takes several."""

from tests.broker.engine.fixtures import host, host_class, member, open_host

__all__ = ["host", "host_class", "member", "open_host"]
