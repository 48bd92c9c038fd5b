"""A cluster of brokers: its configuration and what goes over sockets between its nodes."""
