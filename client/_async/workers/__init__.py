"""Workers in an event loop, see `delaylog.client.workers`."""
