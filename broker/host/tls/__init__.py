"""TLS of the listeners for clients, and the checks of all certificates in use.

Imports only the rest of `broker/host`. TLS between nodes is in `broker/cluster/peers`. Begin with
`certificates` (what is wrong with one), then `contexts`.
"""
