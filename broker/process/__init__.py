"""Puts a process together from its parts: the only folder that imports every face.

`serve` is the process of `delaylog serve`, `parts` makes, starts and stops its parts, `exit_codes`
says why one ended, and `embedded_dashboard` gives an embedded broker the dashboard.
"""
