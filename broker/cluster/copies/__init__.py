"""Copies of a leader's folder for nodes whose log lies behind the leader's first position.

A copy is a backup (`broker/backup/`) that goes over the connection between two nodes: a checkpoint,
the files it counts and the log behind it, taken while the leader goes on. `giving` sends it,
`receiving` takes it, `incoming` is the folder it is written to and how that takes the old
one's place, and `healing` makes room for it where a folder is damaged.
"""
