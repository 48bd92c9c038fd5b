"""The file system as storage sees it: durable writes, reserves, maps.

Imports: nothing of ours.
Begin with `file_system`.
"""
