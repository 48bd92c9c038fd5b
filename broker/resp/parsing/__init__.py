"""Parses requests of the Redis protocol: it is fed bytes as they arrive, and returns commands."""

from delaylog.broker.resp.parsing.limits import RequestLimits
from delaylog.broker.resp.parsing.parser import CommandParser

__all__ = ["CommandParser", "RequestLimits"]
