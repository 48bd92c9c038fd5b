"""Whether a node can do a leader's work, and the moves of the leadership that follow from it.

`judging.py`, `targets.py` and `planning.py` are pure: numbers and times come
in, decisions go out, and they import nothing but each other. `watch.py` collects the numbers of one
member and acts on the decisions; start reading there.
"""
