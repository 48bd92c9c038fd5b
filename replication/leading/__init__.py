"""How a node comes to lead, and what it does while it leads.

Imports: replication.
Begin with `leader`.
"""
