"""The broker: engine, node, HTTP face, configuration and command line."""
