"""Several brokers that one client takes as one.

Imports: wire, errors, models.
Begin with `sharding`.
"""
