"""The SDK for threads, generated from `_async` by `make twins`.

Written by hand are only the modules that tools/unasync.py names: what threads do differently.
"""
