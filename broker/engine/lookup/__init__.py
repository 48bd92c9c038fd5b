"""Look-ups: from ids and origins to the messages they name, as columns.

Imports: topics, storage.
Begin with `find_messages`.
"""
