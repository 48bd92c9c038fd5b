"""The commands, one module per family; importing `all_commands` fills the table."""
