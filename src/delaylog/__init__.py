"""delaylog: a disk-backed delay log broker with a hierarchical timing wheel."""

__version__ = "0.1.0"
