"""TLS of the listeners for clients: contexts, their exchange, the listener, client certificates.

Imports only the rest of `broker/host`. TLS between nodes is in `broker/cluster/peers`. Begin with
`server_tls`.
"""
