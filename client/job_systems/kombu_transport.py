"""The kombu transports `delaylog://` and `delaylogs://` (TLS): queues are topics, acks are leases.

`register_kombu_transport` of this folder makes the URL schemes known. A transport is one connection
of kombu: an SDK client, the keeper of its leases, and the inbox from which events are delivered.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from queue import Empty
from typing import Any, Final

from delaylog.extras import absent

try:
    from kombu.transport import virtual
except ImportError as error:
    raise absent(error, "delaylog.client.job_systems.kombu_transport", "celery") from None

from delaylog.client._sync.client import Client
from delaylog.client.errors import AWAY, ApiError, ClientError
from delaylog.client.job_systems.kombu_bindings import Bindings
from delaylog.client.job_systems.kombu_channel import Channel
from delaylog.client.job_systems.kombu_intake import WAIT, Arrival, Inbox, Intake
from delaylog.client.job_systems.leases import LEASE, LeaseKeeper
from delaylog.client.job_systems.tasks import declare_topic, topic_of
from delaylog.client.wire.times import span_of

log = logging.getLogger("delaylog.job_systems")
PORT: Final = 8711
JOIN_S: Final = WAIT.total_seconds() + 4
CLIENT_OPTIONS: Final = (
    "ca_file",
    "client_cert",
    "client_key",
    "insecure_plain_token",
    "token",
    "token_file",
)


class Transport(virtual.Transport):
    """One connection of kombu: an SDK client, and what its channels share."""

    Channel = Channel
    default_port = PORT
    driver_type = "delaylog"
    driver_name = "delaylog"
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (*virtual.Transport.connection_errors, *AWAY)
    recoverable_connection_errors = connection_errors
    channel_errors = (*virtual.Transport.channel_errors, ApiError)
    # A refusal stays one when it is repeated.
    recoverable_channel_errors = ()

    scheme = "http"
    sdk: Client
    bindings: Bindings

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.transient: set[str] = set()
        """Queues known to be exclusive or to delete themselves."""
        self._declared: set[str] = set()
        self._inbox = Inbox()
        self._loop: Any = None
        self._intakes: list[Intake] = []

    def establish_connection(self) -> Any:
        """Connect. Raises NotReached, and Unauthorized for a wrong token."""
        self.sdk = make_client(self.client, self.scheme)
        broker = self.sdk.broker()
        # kombu repeats a connection itself.
        broker.at_once = True
        try:
            broker.clock()
        except BaseException:
            self.sdk.close()
            raise
        self.bindings = Bindings(self.sdk)
        lease_ms = self.client.transport_options.get("lease_ms")
        lease = LEASE if lease_ms is None else span_of(lease_ms)
        self._keeper = LeaseKeeper(self.sdk, lease, chore=self.bindings.tend)
        self._keeper.start()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close the channels, wait for polls under way, and close the client."""
        if self._loop is not None:
            self._loop.remove_reader(self._inbox.descriptor())
        self._inbox.close()
        super().close_connection(connection)
        for intake in self._intakes:
            intake.join(JOIN_S)
        self._keeper.close()
        self.sdk.close()

    def new_intake(self) -> Intake:
        """The intake of a new channel."""
        self._intakes = [each for each in self._intakes if not each.is_idle]
        self._intakes.append(Intake(self.sdk, self._keeper, self._inbox))
        return self._intakes[-1]

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message. Raises TimeoutError if none comes in time."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                arrival = self._inbox.get(left_s)
            except Empty:
                raise TimeoutError from None
            if self._deliver_arrival(arrival):
                return

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver messages from kombu's event loop, which Celery's prefork pool uses."""
        self._loop = loop
        loop.add_reader(self._inbox.descriptor(), self._deliver_all)

    def _deliver_all(self) -> None:
        self._inbox.seen()
        with suppress(Empty):
            while True:
                arrival = self._inbox.get(0)
                try:
                    self._deliver_arrival(arrival)
                except (ClientError, MemoryError):
                    raise
                except Exception:
                    # Celery cannot begin the message, and its worker would end with the error.
                    log.exception(
                        "a message of queue %s could not be begun: its attempt counts, and it is"
                        " delivered again after its backoff, or is a dead letter",
                        arrival.queue,
                    )
                    self._requeue(arrival)

    def _requeue(self, arrival: Arrival) -> None:
        for channel in self.channels:
            if channel.intake is arrival.intake:
                channel.qos.reject(arrival.receipt, requeue=True)

    def _deliver_arrival(self, arrival: Arrival) -> bool:
        """Whether a consumer got a message. Raises what a poll has met."""
        if arrival.error is not None:
            raise arrival.intake.take_error(arrival.error)
        message = arrival.intake.deliver(arrival.receipt)
        channel = next((each for each in self.channels if each.intake is arrival.intake), None)
        if message is None or channel is None:
            return False
        return bool(channel.deliver(arrival.queue, message))

    def declare_queue(self, queue: str, *, ttl: timedelta | None = None) -> None:
        """Create the topic of a queue when the queue is first used."""
        if queue not in self._declared:
            declare_topic(self.sdk, topic_of(queue), ttl=ttl)
            self._declared.add(queue)

    def forget_queue(self, queue: str) -> None:
        """Create the topic again when the queue is used again."""
        self._declared.discard(queue)


class TlsTransport(Transport):
    """The same over TLS."""

    scheme = "https"


def make_client(conninfo: Any, scheme: str) -> Client:
    """The client of a kombu connection to `delaylog://:TOKEN@host:8711/NAMESPACE`.

    Options of the SDK are taken from `transport_options`, and `timeout_s`, a number of seconds.
    """
    if conninfo.userid:
        raise ValueError("a broker URL of delaylog has no user: write delaylog://:TOKEN@host")
    given: dict[str, Any] = conninfo.transport_options
    options: Any = {name: given[name] for name in CLIENT_OPTIONS if name in given}
    if "timeout_s" in given:
        options["timeout"] = timedelta(seconds=given["timeout_s"])
    if conninfo.password:
        options["token"] = conninfo.password
    host = conninfo.hostname or "localhost"
    return Client(
        f"{scheme}://{f'[{host}]' if ':' in host else host}:{conninfo.port or PORT}",
        namespace=(conninfo.virtual_host or "").strip("/") or "default",
        **options,
    )
