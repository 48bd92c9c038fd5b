"""Finding messages by key and tag: the index of texts, filled from sends, and look-ups in it.

Imports: lookup, storage, and `views/scanning` for a rebuild. `views` and `jobs` ask it.
Begin with `candidates`.
"""
