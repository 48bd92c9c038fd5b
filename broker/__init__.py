"""The broker: the engine, and around it the node, its interfaces and the command line.

Read `serve` (the process), then `node` (one engine on an event loop). `engine/` decides, `calls/`
defines the API, and `web/`, `resp/` and `embedded/` carry calls to it.
"""
