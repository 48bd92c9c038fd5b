"""Group commit: all frames that one turn of the loop appended are written and synced together.

Imports: storage.
Begin with `log_commits`.
"""
