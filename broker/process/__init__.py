"""Puts a process together from its parts: the only folder that imports every face.

`serve` starts and stops the parts of `delaylog serve`, `exit_codes` says why one ended, and
`embedded_dashboard` gives an embedded broker the dashboard.
"""
