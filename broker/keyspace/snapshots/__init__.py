"""The keyspace as a file: its layout, what each kind of value is there, writing and reading."""
