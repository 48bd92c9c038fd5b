"""Backups of a data folder, also of one that is being served, and their way back.

A backup is a data folder as a crash would have left it, made of one checkpoint, what that counts,
and the log behind it; a restored broker recovers from it as from a kill.
"""
