"""Replication of the physical log: pure state machines without sockets, clock or asyncio.

Imports: storage. Only `raftos_oracle` uses an event loop and a network.
Begin with `node` (one node of a cluster), then `campaign`, `leader` and `follower`; `wire` has the
bytes.
"""
