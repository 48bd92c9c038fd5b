"""Copies of a leader's folder for nodes that need log from before the leader's first position.

A copy is an online backup (`broker/backup/`) sent over the connection between two nodes.
Imports: the host, replication, storage. Begin with `exchange`; `giver` sends a copy, `receiver`
takes and checks it, `incoming_folder` installs it, `damaged_files` sets a damaged folder aside
first.
"""
