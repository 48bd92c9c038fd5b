"""Verbs about topics of a running broker: counts, forecasts, settings.

Verbs that only print the answer of a call are rows of `called`, in the folder above.
"""
