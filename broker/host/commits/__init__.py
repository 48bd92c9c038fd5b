"""Group commit: what a turn of the loop appended is written and synced together.

Imports: storage.
Begin with `log_commits`.
"""
