"""The SDK for asyncio, and the source of the SDK for threads.

`_sync` is generated from it (`make twins`): change a module here, and its twin follows. Begin with
`client`. Modules that both sides write by hand are named in tools/unasync.py.
"""
