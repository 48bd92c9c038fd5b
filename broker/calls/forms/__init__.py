"""Codecs for the bodies of sends and deliveries: bulk, Arrow, JSON; limits on their structure."""
