"""Finding messages by key and tag: the index of texts, filled from sends, and look-ups in it.

Imports: lookup, topics, storage. `views` and `jobs` ask it.
Begin with `candidates`.
"""
