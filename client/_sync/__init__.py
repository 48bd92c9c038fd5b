"""The SDK for threads, generated from `_async` by `make twins`.

The modules that tools/unasync.py lists are written by hand.
"""
