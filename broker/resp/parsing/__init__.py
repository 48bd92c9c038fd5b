"""Parses requests of the Redis protocol: bytes go in as they arrive, whole commands come out."""

from delaylog.broker.resp.parsing.limits import RequestLimits
from delaylog.broker.resp.parsing.parser import CommandParser

__all__ = ["CommandParser", "RequestLimits"]
