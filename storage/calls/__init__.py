"""The table of the API's calls: what each one is named, takes, answers and needs.

The broker routes, checks and documents by it, the SDK makes its requests from it, and the command
line its options; a handler in `broker/calls` gives a call its meaning.
"""
