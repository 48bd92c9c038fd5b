"""Failures: why attempts at messages failed, kept for as long as the messages are.

Imports: lookup, deliver (leases), topics, storage.
Begin with `failure_table`.
"""
