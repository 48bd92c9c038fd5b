"""The host: one event loop around one engine, with its timers, commits and admission.

Imports: engine, storage. Carriers and the cluster are attached to it.
Begin with `node`.
"""
