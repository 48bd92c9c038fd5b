"""For all tests: how long an example of Hypothesis takes says something of the machine only."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("delaylog", deadline=None)
settings.load_profile("delaylog")
