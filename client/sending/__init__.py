"""Sending: messages are gathered into batches, which are retried idempotently."""
