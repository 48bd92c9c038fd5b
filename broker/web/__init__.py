"""Carries HTTP to `broker/calls`: the server and the OpenAPI document.

Read `app` first. Only this folder and `broker/process/embedded_dashboard.py` import aiohttp's
server. `broker/calls` decides what a call means.
"""
