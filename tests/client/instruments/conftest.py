"""The broker of workers' tests, which these use too."""

from tests.client.workers.conftest import broker, kind, live

__all__ = ["broker", "kind", "live"]
