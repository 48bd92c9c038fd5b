"""The HTTP faces of the broker."""
