"""Failover drills: real nodes, a load that writes down what it sees, and one fault again and again.

A drill needs nothing but this package, and everything that it starts ends with it. The nodes are
unchanged `delaylog serve` processes; what was promised is judged from outside, by the history.
"""
