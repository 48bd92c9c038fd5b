"""What each call of the API means: a `Context` in, an `Answer` out.

`operations/` is the table of calls, `routing` finds the call of a path, `shapes` declares what
calls take, `forms/` has the forms of bodies. Nothing here knows a network library: `broker/web`
carries HTTP, `broker/embedded` carries calls of its process, and `broker/resp` uses parts of it.
"""
