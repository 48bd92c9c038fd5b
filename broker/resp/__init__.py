"""The Redis-compatible endpoint: sockets, group commit of replies, the delay log's own verbs."""
