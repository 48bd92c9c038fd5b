"""Clusters: hosts replication, elections, membership and the connections between nodes.

Imports: replication, the host, the engine, backups (for copies of a folder).
`cluster_node` opens a node; `member` is the core, which its parts call back. `config`
reads the cluster file. Folders: `peers` (connections), `members` (membership), `leading` (what a
leader does), `copies` (of a data folder), `watch` (who should lead, clocks and metrics).
"""
