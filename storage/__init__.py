"""Storage: the physical log, the delay hours and what recovery needs. No clock, no asyncio."""
