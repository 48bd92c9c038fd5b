"""The SDK for asyncio, and the source of the SDK for threads.

`make twins` generates `_sync` from this package, except for the modules that tools/unasync.py lists
as written by hand. Start reading at `client`.
"""
