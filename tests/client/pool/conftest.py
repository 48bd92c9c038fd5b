"""The brokers of workers' tests, which these use too."""

from tests.client.workers.conftest import broker, killable, live

__all__ = ["broker", "killable", "live"]
