"""Replication of the physical log between nodes: pure state machines (not built yet)."""
