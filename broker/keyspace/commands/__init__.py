"""The commands, a module per family; importing `all_commands` fills the table."""
