"""The process: its memory, file descriptors and disk space, and the locks of its folder.

Imports: storage.
Begin with `folder_lock`.
"""
