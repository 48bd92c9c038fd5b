"""Carries HTTP to `broker/calls`: the server, camellia's API, the OpenAPI document.

Read `app` first. Only this folder imports aiohttp's server. `broker/calls` decides what a call
means.
"""
