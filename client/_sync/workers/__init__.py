"""Workers in threads, see `delaylog.client.workers`."""
