"""What can be configured: the table of settings and their sources, and the `[oidc]` table.

`host/config.py` checks the settings and makes a `Config` of them.
"""
