"""The engine: the synchronous, deterministic heart of the broker. One folder, one thread.

Imports: broker.keyspace, storage and wheel; time, files and randomness are arguments.
Begin with `engine`, which owns a folder, then `send/sending` and `deliver/receiving`: what a
message's way is made of. `state` is what frames change, and `apply/` says how.
"""
