"""The audit log: who called what, in files of JSON lines that are chained by hash.

Imports: `storage/` and `host/machine`. The service log is another log. Begin with `lines` (one
line), then `files` (their folder), then `audit_log` (what the broker calls).
"""
