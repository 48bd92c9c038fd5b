"""What the system gives the process: memory, disk space, names, and the lock of its folder.

Imports: storage.
Begin with `folder_lock`.
"""
