"""Recognises the caller of a call, keeps browser sessions, and decides what a caller may do.

`broker/engine/access` has the principals and decides by their grants. `Authenticator` turns what a
client sent (a token, a cookie, a certificate) into a `Caller`, which handlers ask before they act.
"""
