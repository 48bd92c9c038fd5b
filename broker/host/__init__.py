"""The host: one process around one engine, with its loop, timers, commits and admission.

Imports: calls, engine, storage. Carriers and the cluster are attached to it.
Begin with `node`.
"""
