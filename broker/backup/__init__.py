"""Backup and restore of a data folder; a broker may be serving the folder during a backup.

A backup is a data folder in a state that a crash could have left: one checkpoint, the rows that it
counts, and the log behind it. A restored broker recovers from it as after a kill. First file:
`folder_copy`.
"""
