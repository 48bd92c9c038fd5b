"""Job systems that keep their tasks in the delay log.

A task with an ETA or a delay is stored with its due time, so no worker holds it in memory, and a
task that runs is a message under lease. A module imports the package of its job system, which only
an extra of delaylog installs; this one imports none of them. docs/JOB_SYSTEMS.md is the user's
page, `leases.py` is the part that all share; read it first.
"""

from importlib.util import find_spec
from typing import Any, Final

from delaylog.extras import needed_by

MODULE: Final = "delaylog.client.job_systems.kombu_transport"


def register_kombu_transport() -> None:
    """Make kombu, and so Celery, understand `delaylog://` and, for TLS, `delaylogs://` URLs.

    Call it in the module of the Celery application, before the first connection. Calling it again
    has no effect. In workers of Celery it also lets `revoke` reach the tasks in the broker, and
    keeps the tasks whose retries cannot be stored.
    """
    with needed_by("delaylog.client.job_systems", "celery"):
        from kombu.transport import TRANSPORT_ALIASES

    TRANSPORT_ALIASES["delaylog"] = f"{MODULE}:Transport"
    TRANSPORT_ALIASES["delaylogs"] = f"{MODULE}:TlsTransport"
    if find_spec("celery") is not None:
        from celery.signals import worker_init

        worker_init.connect(_extend_worker)


def _extend_worker(**_: Any) -> None:
    from delaylog.client.job_systems import celery_worker  # noqa: F401


__all__ = ["register_kombu_transport"]
