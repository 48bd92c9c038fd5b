"""Forms of bodies of sends and of deliveries: bulk, Arrow, JSON; and limits on their structure."""
