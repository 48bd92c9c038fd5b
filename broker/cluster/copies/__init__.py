"""Copies of a leader's folder for nodes that need log from before the leader's first position.

A copy is an online backup (`broker/backup/`) sent over the connection between two nodes.
Imports: the host, replication, storage. Begin with `exchange`; `giving` sends a copy, `receiving`
takes it, `incoming` writes and installs it, `healing` sets a damaged folder aside first.
"""
