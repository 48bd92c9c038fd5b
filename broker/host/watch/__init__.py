"""Observation of a process: its log, times of requests and of the disk, lag of the event loop, and
files that are read again when they change.

Imports: engine, other files of `host`.
Begin with `timings`.
"""
