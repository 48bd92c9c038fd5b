"""A pytest plugin for programs that use delaylog: fixtures with a live or an embedded broker."""
