"""Send: a batch is judged, its ids are looked up, and one frame says what was decided.

Imports: apply, topics, storage.
Begin with `sending`.
"""
