"""Distributions that the engine measures of its own work: how late messages are.

Imports: storage. Nothing here is state: a restart begins with zeros.
Begin with `histogram`.
"""
