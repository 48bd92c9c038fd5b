"""The calls of the API as values: a request, and how to read its answer. Nothing is sent here.

Each function returns a `Call`, which any transport can carry out. So a call is written once for
threads and asyncio.
"""
