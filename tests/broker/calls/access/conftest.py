"""Fixtures: hosts of engines."""

from tests.broker.engine.fixtures import host, host_class, open_host

__all__ = ["host", "host_class", "open_host"]
