"""Verbs about topics of a running broker: their counts and settings.

Verbs that only print the answer of a call are rows of `called`, in the folder above.
"""
