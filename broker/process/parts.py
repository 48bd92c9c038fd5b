"""The parts of a node that serves: made, started one after the other, stopped in reverse order.

A part that fails to start ends the process without a stop of the others: everything is in the log.
`Served` is what leaves get from the process, and what they give it to stop.

Python's cyclic garbage collector is configured to avoid long pauses. A full collection scans every
container, on the loop, while no call is answered. With a million keys that takes most of a second,
and while those keys were written the collections took as much time as all the writing. Keys and
messages form no cycles, so a collection finds nothing among them. So objects that exist at the
start are frozen: never scanned again. Once a full collection takes too long, the objects that
survive it are frozen too, and later collections scan only newer objects. The cost is small: a cycle
that is in use during such a collection and becomes garbage later, for example a client's
connection, is never freed. Objects without cycles are freed at once as usual, frozen or not. An
engine can be replaced, so it has none; see `EngineState.inherit`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any, Final, TypeAlias

from delaylog.broker.calls.access.first_admin import is_awaited
from delaylog.broker.calls.operations import Handler
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.cluster.cluster_node import ClusterNode, open_cluster_node
from delaylog.broker.cluster.watch.member_watch import (
    names_of_node,
    told_to_clients,
    unlike_options,
)
from delaylog.broker.cluster.watch.metrics import ClusterMetrics
from delaylog.broker.engine.engine import Engine, Membership, Setup
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.config import Config
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.settings import ConfigError, cannot_listen
from delaylog.broker.host.system import descriptors
from delaylog.broker.host.system.folder_lock import retention_suspended
from delaylog.broker.host.system.snapshot_child import ChildRun
from delaylog.broker.host.tls.certificate_watch import CertificateWatch
from delaylog.broker.host.tls.certificates import Hosts
from delaylog.broker.host.tls.contexts import ClientTls, ServerTls
from delaylog.broker.host.watch.audit_files import FOLDER
from delaylog.broker.host.watch.audit_log import AuditLog
from delaylog.broker.host.watch.lateness import StallTrace
from delaylog.broker.host.watch.logs import StartLog
from delaylog.broker.host.watch.metrics import Metrics, ReloadMetrics
from delaylog.broker.host.watch.reloader import Reloader
from delaylog.broker.host.watch.timings import note_recovery
from delaylog.broker.leaves import is_installed
from delaylog.broker.process.leaves import leaf_pages, leaves
from delaylog.broker.rules.addresses import host_port
from delaylog.broker.web.app import HttpFace
from delaylog.broker.web.mounts import Mounts
from delaylog.broker.web.oidc import OidcIssuer
from delaylog.broker.web.request_heads import RequestChecks, host_name
from delaylog.extras import PUSH
from delaylog.storage.errors import MissingPartError, damage_of
from delaylog.storage.files.os_file_system import OsFileSystem

# --------------------------------------------------------------------------- garbage collection

PASS_SECONDS_MAX: Final = 0.02
"""A full collection that takes longer freezes the surviving objects. This is processor time, so
that a busy machine does not look like a large heap."""
THRESHOLDS: Final = (2_000, 10, 2)
"""2,000 new containers are scanned in less than a millisecond. A full collection runs after 66,000,
where Python's defaults take 77,000 and more: with frequent freezing none of them scans much."""

_FULL: Final = 2


class Collector:
    """Measures full collections, and freezes the surviving objects when one takes too long."""

    def __init__(self) -> None:
        self._began = 0.0
        self.frozen = 0
        """Number of collections after which the surviving objects were frozen."""

    def prepare(self) -> None:
        """Disable collection until `start`: a recovery makes no garbage, and would take twice as
        long.
        """
        gc.disable()

    def start(self) -> None:
        """Freeze all present objects and enable collection."""
        gc.set_threshold(*THRESHOLDS)
        gc.freeze()
        gc.callbacks.append(self._note)
        gc.enable()

    def stop(self) -> None:
        """Stop measuring collections."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began = thread_time()
        elif thread_time() - self._began > PASS_SECONDS_MAX:
            # The surviving objects are in use, as this collection has just found.
            gc.freeze()
            self.frozen += 1


# ------------------------------------------------------------------------------ what leaves get

Stop: TypeAlias = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Served:
    """The parts of a process, before they start."""

    node: ServingNode
    config: Config
    metrics: Metrics
    audit: AuditLog
    face: HttpFace
    tls: ServerTls | None
    """Certificates for listeners; None: without TLS."""
    on_fatal: Callable[[BaseException], None]
    """Ends the process."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener beside that of HTTP."""

    name: str
    """In the line that says that the process is ready."""
    listen: Callable[[], Awaitable[str]]
    """Start to listen; returns HOST:PORT. Raises ConfigError."""
    close_listener: Stop
    """Take no new connections."""
    stop: Stop
    """Close the connections, after all listeners are closed."""
    connections: Callable[[], int]
    """Count of its clients, which share the file descriptors with those of HTTP."""


# ------------------------------------------------------------------------------------ the parts

log = logging.getLogger("delaylog.serve")


class Parts:
    """The parts of one node. `open`, then `start`, then `stop`."""

    node: ServingNode
    """From `open` on."""

    def __init__(self, config: Config, on_fatal: Callable[[BaseException], None]) -> None:
        """`on_fatal` ends the process."""
        self._config, self._on_fatal = config, on_fatal
        self._stops: list[Stop] = []
        """What stops the parts, in the order of their start."""
        self._clock = BrokerClock(
            on_step=lambda ms: log.warning("the wall clock stepped", extra={"step_ms": ms})
        )
        self._recovery: dict[str, Histogram] = {}
        self._hold = config.hold
        self._collector = Collector()
        self.reloader, self._certificates = Reloader(REAL), CertificateWatch(REAL)
        self.reloader.after = self._certificates.look
        self._tls: ServerTls | None = None
        self._nodes_tls: ClientTls | None = None
        self._place: ClusterNode | None = None
        """Its place in a cluster."""

    # ------------------------------------------------------------------ opening

    async def open(self) -> None:
        """Recover the folder. Raises what `exit_codes` explains."""
        config, clock = self._config, self._clock
        fault = config.limits.clock_fault(clock.now_ms())
        if fault is not None:
            raise ConfigError(fault)
        self._read_certificates()
        self._collector.prepare()
        if config.cluster is None:
            engine = self._make_engine()
            node = ServingNode(engine, clock, self._on_fatal, fsync=config.fsync, machine=REAL)
            clock.hold_from(node.engine.started_ms)
        else:
            node = await self._open_member()
        if self._tls is not None:
            self._tls.hosts = self._hosts()
            if self._nodes_tls is not None:
                self._tls.roots = self._nodes_tls.roots
        if not is_installed(PUSH):
            node.push_rules = None
        node.reloader = self.reloader
        node.timings.recovery = self._recovery
        node.files_pinned = self._files_pinned
        clock.on_jump = node.clock_jumped
        self.node = node
        self._set_access()
        if clock.ahead_ms:
            log.warning(
                "the wall clock is behind the broker's clock, which waits until wall time has "
                "caught up or the step is accepted (POST /v1/clock)",
                extra={"held_ms": clock.ahead_ms},
            )

    def _read_certificates(self) -> None:
        config = self._config
        if config.tls_ca is not None:
            self._nodes_tls = ClientTls(config.tls_ca)
            self.reloader.register("tls-ca", self._nodes_tls.files, self._nodes_tls.read)
            self._certificates.add(self._nodes_tls)
        if config.tls is not None:
            self._tls = ServerTls(config.tls)
            self.reloader.register("tls", self._tls.files, self._tls.read)
            self._certificates.add(self._tls)

    def _make_engine(
        self, member: Membership | None = None, loaded: LoadedKeyspace | None = None
    ) -> Engine:
        config, started = self._config, StartLog(REAL.steady_s)
        engine = Engine(
            OsFileSystem(),
            config.data_dir,
            Setup(
                random=REAL.random(),
                limits=config.limits,
                open_hours_max=min(descriptors.OPEN_HOURS_SERVED, descriptors.served().hours),
                progress=log.info,
                working=started,
                make_snapshot=ChildRun,
                check=_check_parts,
                hold=self._hold,
                archive_hold=config.archive_hold,
            ),
            now_ms=self._clock.now_ms(),
            member=member,
            loaded=loaded,
        )
        # Once for the process: an operator may release the broker before the next engine.
        self._hold = None
        note_recovery(self._recovery, started.ended())
        return engine

    async def _open_member(self) -> ServingNode:
        place = self._place = await open_cluster_node(
            self._config, self._clock, self._make_engine, self._on_fatal, REAL
        )
        self._stops.append(place.files.close)
        member = place.member.config
        if member.secret.files:
            self.reloader.register("cluster-secret", member.secret.files, place.read_secret)
        if member.tls is not None:
            self.reloader.register("cluster-tls", member.tls.files, member.tls.read)
            self._certificates.add(member.tls)
            member.tls.hosts = names_of_node(member.me)
        place.member.watch.certificates = self._certificates.facts
        return place.node

    def _files_pinned(self) -> bool:
        # Messages come before backups: a broker that needs the space removes files, and a backup
        # that misses them starts again or fails with an error.
        config = self._config
        enough = self.node.free_bytes() >= 2 * config.limits.disk_reserve_bytes
        return enough and retention_suspended(config.data_dir)

    def _set_access(self) -> None:
        """Require authentication wherever other machines reach the node, unless it is off."""
        config, node = self._config, self.node
        authenticator, state = node.access.authenticator, node.engine.state
        node.access.expect_first_admin(config.admin_token)
        awaited = is_awaited(state.fs, config.data_dir)
        known = config.admin_token is not None or config.oidc is not None
        authenticator.switched_off = config.no_auth
        authenticator.always_required = config.open_to_others or known or awaited
        begins = config.cluster is None or config.new_cluster
        has_principal = bool(state.access.principals) or awaited
        if begins and authenticator.required and not known and not has_principal:
            log.warning(
                "every call is refused, since there is no principal: stop this node and run "
                "`delaylog init` on its data folder, or set DELAYLOG_ADMIN_TOKEN"
            )
        if config.no_auth:
            log.warning(
                "authentication is switched off by --insecure=no-auth: anyone may do anything"
            )
        if config.no_tls and config.tls is None:
            log.warning(
                "TLS is switched off by --insecure=no-tls: everyone on the way may read and change "
                "messages and tokens"
            )

    def _hosts(self) -> Hosts:
        """The names and addresses at which clients call this node."""
        place = self._place
        named = () if place is None else told_to_clients(place.member.config.me)
        return Hosts(named, tuple(self._config.called_at))

    # ------------------------------------------------------------------ starting

    async def start(self) -> dict[str, str]:
        """Serve; returns HOST:PORT of each listener by its name. Raises as `open`."""
        config, node, place, stops = self._config, self.node, self._place, self._stops
        metrics, audit = self._metrics(), self._audit()
        metrics.registry.register(audit)
        face = HttpFace(node, metrics, self._mounts(), self._request_checks(), audit)
        served = Served(node, config, metrics, audit, face, self._tls, self._on_fatal)
        endpoints = self._endpoints(served)

        audit.start()
        stops.append(audit.stop)
        node.start()
        stops.append(node.stop)
        if place is not None:
            stops.append(place.member.stop)
        stops += [endpoint.stop for endpoint in endpoints]
        stops.append(face.stop)
        if config.oidc is not None:
            oidc = OidcIssuer(config.oidc, node)
            node.access.authenticator.foreign = oidc.caller
            await oidc.start()
            stops.append(oidc.stop)
        if config.log_level == "debug":
            StallTrace(node.loop_lag).start()
        stops.append(node.waiters.close)
        if place is not None:
            stops.append(place.leave)

        listening = await self._listen(face, endpoints)
        stops += [leaf.start(served, listening) for leaf in leaves() if leaf.start is not None]
        self._collector.start()
        self._certificates.start()
        stops.append(self._certificates.stop)
        self.reloader.start()
        stops.append(self.reloader.stop)
        return listening

    async def _listen(self, face: HttpFace, endpoints: Sequence[Endpoint]) -> dict[str, str]:
        config, place = self._config, self._place
        asked = config.http_host, config.http_port
        try:
            port = await face.start(*asked, self._tls)
        except OSError as error:
            raise cannot_listen(f"{host_port(asked)} (--http)", error) from None
        self._stops.append(face.close_listener)
        listening = {"http": host_port((config.http_host, port))}
        for endpoint in endpoints:
            listening[endpoint.name] = await endpoint.listen()
            self._stops.append(endpoint.close_listener)
        if place is not None:
            await place.start()
            me, resp = place.member.config.me, config.listeners.get("resp")
            resp_port = None if resp is None else resp[1]
            for text in unlike_options(me, port, resp_port, has_tls=config.tls is not None):
                log.warning(text)
            listening["peer"] = host_port(me.peer)
        return listening

    def _metrics(self) -> Metrics:
        metrics = Metrics(self.node)
        if self._place is not None:
            metrics.registry.register(ClusterMetrics(self._place.member))
        metrics.registry.register(ReloadMetrics(self.reloader))
        metrics.registry.register(self._certificates)
        return metrics

    def _audit(self) -> AuditLog:
        config, place = self._config, self._place
        return AuditLog(
            OsFileSystem(),
            f"{config.data_dir}/{FOLDER}",
            0 if place is None else place.member.config.node,
            config.audit,
            REAL,
            self.node.space.make_room,
        )

    def _request_checks(self) -> RequestChecks:
        """Checks with the host names of this node: configured ones and those of the cluster."""
        config, place = self._config, self._place
        hosts = [config.http_host, *config.http_hosts]
        if place is not None:
            urls = [member.http_url for member in place.member.config.members]
            hosts += [host_name(url.partition("://")[2]) for url in urls]
        return RequestChecks(hosts, config.http_allowed_origins)

    def _mounts(self) -> Mounts:
        apis = (leaf.api(self.node, self._nodes_tls) for leaf in leaves() if leaf.api is not None)
        files = (leaf.files() for leaf in leaves() if leaf.files is not None)
        calls: dict[str, Handler] = {}
        for leaf in leaves():
            if leaf.calls is not None:
                calls |= leaf.calls()
        return Mounts(tuple(apis), tuple(files), calls, leaf_pages())

    def _endpoints(self, served: Served) -> list[Endpoint]:
        made = [leaf.endpoint(served) for leaf in leaves() if leaf.endpoint is not None]
        endpoints = [endpoint for endpoint in made if endpoint is not None]
        served.face.other_connections = lambda: sum(each.connections() for each in endpoints)
        return endpoints

    # ------------------------------------------------------------------ the end

    async def stop(self) -> None:
        """Stop what was started, the newest first; a leader hands over.

        The first error ends it: the disk or the state cannot be trusted then.
        """
        for stop in reversed(self._stops):
            stopping = stop()
            if stopping is not None:
                await stopping

    def note_damage(self, error: BaseException) -> None:
        """Remember damage of the folder for the next start, which may get a copy."""
        damage = damage_of(error)
        if damage is not None and self._place is not None:
            self._place.note_damage(damage)

    @property
    def has_peers(self) -> bool:
        """Whether other nodes may have a copy of the folder."""
        return self._place is not None and bool(self._place.member.config.others)


def _check_parts(state: EngineState) -> None:
    """Raise MissingPartError for a folder that needs a leaf which is not installed.

    The engine looks for data of Redis clients itself.
    """
    if state.targets.targets and not is_installed(PUSH):
        raise MissingPartError("the folder has push targets", PUSH)
