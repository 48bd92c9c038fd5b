"""Verbs that watch a running broker: top and tail.

Imports: cli, client. They need no package of the server, so they parse the metrics themselves.
Begin with `top`.
"""
