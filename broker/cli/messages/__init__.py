"""Verbs about messages of a running broker; read `sends` and `leases` first.

They call the broker by `connection` and print by `output`.
"""
