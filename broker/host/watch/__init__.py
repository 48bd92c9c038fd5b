"""Observation of a process: its logs, the audit log, metrics, lateness, times of requests and of
the disk, and files that are read again when they change.

Imports: engine, storage, other files of `host`. Collectors of cluster, push and Redis clients are
in their own folders, and take names from `metrics_table`.
Begin with `timings`.
"""
