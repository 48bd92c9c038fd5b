"""Sharding: several brokers that one client treats as one.

Imports: wire, errors, models.
Begin with `sharding`.
"""
