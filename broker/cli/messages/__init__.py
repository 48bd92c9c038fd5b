"""Verbs about messages of a running broker; read `sending` and `receiving` first.

They call the broker by `connection` and print by `output`.
"""
