"""Dyno-queues on the native API."""
