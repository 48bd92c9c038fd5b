"""Hooks that ship with the SDK: metrics for Prometheus, traces for OpenTelemetry.

Each module needs a package of an extra of its own name, so nothing here is imported by the client:
`from delaylog.client.instruments.prometheus import PrometheusHooks`.
"""
