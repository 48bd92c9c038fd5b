"""What the system gives the process: memory, descriptors, names, a child process, and
the lock of its folder.

Imports: storage.
Begin with `folder_lock`.
"""
