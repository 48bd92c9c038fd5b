"""Topics and their groups: what they are, their settings, how they come and go.

Imports: ready, storage.
Begin with `groups`.
"""
