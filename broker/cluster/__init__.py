"""Clusters: hosts replication, elections, membership and the connections between nodes.

Imports: replication, the host, the engine, backups (for copies of a folder).
`cluster_node` opens a node; `member` is the core, which its parts see as `member_view`. Folders:
`config` (the cluster file), `peers` (connections), `members` (membership), `leading` (what a leader
does), `fitness` (who should lead), `copies` (of a data folder), `watch` (clocks and metrics).
"""
