"""Failover drills: a real cluster of three nodes under load, and one kind of fault, round by round.

The nodes are unchanged `delaylog serve` processes. The load records every call and answer, and the
promises are checked from this history. A drill ends every process that it has started. First file:
`run`.
"""
