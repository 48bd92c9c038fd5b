"""The table of the API's calls: the name, path, parameters and answer of each, and its right.

The broker routes, checks and documents requests by this table. The SDK builds its requests from it,
and the command line its options. A handler in `broker/calls` carries a call out. Read `call.py`
first, then `table.py`.
"""
