"""Commands about the server, its clients and its table of commands.

Imports: registry, options, running.
Begin with `connection`.
"""
