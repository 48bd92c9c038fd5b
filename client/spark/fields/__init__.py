"""The fields of a message as columns of a DataFrame.

`table.py` is generated from the broker's table of fields, so a field that the broker gets is a
column here without further code. `kinds.py` gives each type of Spark SQL in that table its Arrow
type and says which Spark types fit. Imports nothing else of the connector.
"""
