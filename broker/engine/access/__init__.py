"""Who may do what: principals, their secrets and grants, and the decision on a call.

Principals are part of the replicated state: ACCESS frames change them, checkpoints contain them.
Only digests of secrets are stored. This folder reads no clock and draws no secret: both are
arguments. Read `grants.py` first. `broker/calls/access` recognises the caller of a call.
"""
