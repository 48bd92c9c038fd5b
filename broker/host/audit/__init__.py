"""The audit log: who called what, in files of JSON lines.

Imports: `storage/`, `host/machine` and the families of metrics. The service log is another log.
Begin with `lines` (one line), then `audit_log` (what the broker calls), then `files`.
"""
