"""Storage: the physical log, the delay hours, ids and checkpoints. No clock, no asyncio."""
