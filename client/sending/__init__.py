"""Sending: messages gathered into batches, repeated without adding anything, each with its end."""
