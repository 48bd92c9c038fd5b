"""Release of due messages: one timer, and the pause between two releases.

Imports only the rest of `broker/host`. Begin with `release_timer`.
"""
