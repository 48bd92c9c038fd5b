"""Lua scripts and functions of the Redis-compatible adapter, in a sandboxed Lua 5.1."""

from delaylog.broker.keyspace.scripts.functions import Function, FunctionLibraries, Library
from delaylog.broker.keyspace.scripts.limits import ScriptLimits
from delaylog.broker.keyspace.scripts.scripts import Scripts

__all__ = ["Function", "FunctionLibraries", "Library", "ScriptLimits", "Scripts"]
