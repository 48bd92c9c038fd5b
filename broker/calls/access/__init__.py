"""Who makes a call: recognises callers, remembers browser sessions, and decides what they may do.

`broker/engine/access` has the principals and the decision itself. `Authenticator` turns what a
client sent (a token, a cookie, a certificate) into a `Caller`, which handlers ask before they act.
"""
