"""RMQ's three kinds of message on the native API."""
