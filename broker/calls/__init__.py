"""What each call of the API means: a `Context` in, an `Answer` out.

Read `contract/calls/` first: it is the table of calls; `operations` has their handlers. `routes`
finds the call of a path, `context` checks the request against the table, `forms/` decodes and
encodes bodies. No module here imports a network library: `broker/web` carries calls over HTTP,
`broker/embedded` within the process, and `broker/resp` uses `writes` and other parts for its `DL.*`
verbs.
"""
