"""Topics and their groups: settings, counts, rate limits, metrics, and commands that change them.

Imports: ready, storage; `commands` and `idle` also apply and deliver.
Begin with `groups`.
"""
