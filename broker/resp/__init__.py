"""The Redis-compatible endpoint: sockets, group commit of replies, verbs of the delay log.

`face` serves a node and sees its clients by the `Client` protocol; `connection`, which implements
that, and `endpoint` are above it. Begin with `face`.
"""
