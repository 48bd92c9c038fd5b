"""Lua scripts and functions of the Redis-compatible adapter, in a sandboxed Lua 5.1."""

from delaylog.broker.keyspace.scripts.runtime import ScriptLimits
from delaylog.broker.keyspace.scripts.scripts import Function, FunctionLibraries, Library, Scripts

__all__ = ["Function", "FunctionLibraries", "Library", "ScriptLimits", "Scripts"]
