"""The metrics of a broker: one table of all of them, and what turns values into a scrape.

Imports: engine, and what it measures in `host`. Collectors of cluster, push and Redis clients are
in their own folders, and take names from the table here.
Begin with `table`.
"""
