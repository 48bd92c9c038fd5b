"""Pure rules: values in, decisions out. They know nothing of the rest of the broker."""
