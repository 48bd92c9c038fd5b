"""What the engine measures of its own work (how late messages are, how long steps take), and taps
for clients that watch what is handed out.

Imports: storage. Nothing here is state: a restart begins with zeros.
Begin with `histogram`.
"""
