"""What a load did: its counts on the driver, and whether a repeat has the same rows.

Read `load_result.py` first. `publication.py` and `refreshing.py` ask the broker, `reporting.py`
tells the person, `same_rows.py` compares the rows of a repeated load. Imports no writer and no
delivery.
"""
