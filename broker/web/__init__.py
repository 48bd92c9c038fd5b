"""Carries HTTP to `broker/calls`: the server, camellia's API, the OpenAPI document.

Read `app` first. Only this folder imports aiohttp's server; what a call means is decided in
`broker/calls`.
"""
