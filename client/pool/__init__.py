"""The processes of `delaylog worker`: each runs the consumers and tasks of one application.

`pool` is the parent: it starts processes, restarts those that die, and stops them. `child` is the
program of each process. They share a socket: the child says whether its workers are connected, and
ends when the parent is gone. Start with `pool`.
"""
