"""Reads the payloads of RESTORE: one value, encoded as in Redis's own snapshots.

type, 1 byte | value | version, 2 bytes, lowest first | CRC-64 of all before, lowest first
"""
