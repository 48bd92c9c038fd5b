"""Streams: the messages of a group as they become ready, under leases and within a credit.

Read `flow` first: it leases and counts. `frames` has the forms of what goes to and comes from a
client, `session` is the protocol over a duplex connection, `events` that of server-sent events.
docs/STREAMS.md describes both. `websocket` opens streams and carries a session over aiohttp, `leaf`
says what HTTP gets. It imports the calls, the host and HTTP.
"""
