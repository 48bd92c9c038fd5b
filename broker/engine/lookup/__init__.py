"""Look-ups: from ids, keys and tags to the messages that have them, as columns.

Imports: topics, storage, and `views/scan` to rebuild the index of keys and tags.
Begin with `find_messages`.
"""
