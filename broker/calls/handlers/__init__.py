"""The handlers of the calls in the table (`contract/calls`), one module a kind of thing.

Imports: calls, engine.
Begin with `messages`.
"""
