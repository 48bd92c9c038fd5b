"""Backup and restore of a data folder; a broker may be serving the folder during a backup.

A backup is a data folder as a crash would have left it, made of one checkpoint, what that counts,
and the log behind it; a restored broker recovers from it as from a kill.
"""
