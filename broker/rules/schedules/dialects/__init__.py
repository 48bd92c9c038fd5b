"""Lines of other schedulers: recognised by name, and converted exactly or refused with the reason.

Other crons are in `cron_lines.py`. `table.py` lists all dialects, and is what the rest asks:
`readings` for a line that is not ours, `converted` for one whose dialect the caller names.
`fields.py` turns the fields of a dialect into ours, and `lines.py` writes the members of a timing.
Imports zones, wall time and the lines of iCalendar, and nothing else of the broker.
"""
