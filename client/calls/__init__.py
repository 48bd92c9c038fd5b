"""The calls of the API as values: what is asked, and how the answer is read; nothing is sent here.

Each function returns a `Call`, which any transport can carry, so that a call is written once for
threads and for asyncio.
"""
