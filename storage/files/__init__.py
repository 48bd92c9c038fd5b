"""The file system as storage sees it: durable writes, reserves, maps.

Imports: layout, errors.
Begin with `file_system`.
"""
