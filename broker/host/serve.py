"""`delaylog serve`: open the folder, recover, listen, serve until a signal, shut down cleanly."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from delaylog.broker.calls.access.first_admin import is_awaited
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.cluster.cluster_node import ClusterNode, open_cluster_node
from delaylog.broker.cluster.members.addresses import (
    names_of_node,
    told_to_clients,
    unlike_options,
)
from delaylog.broker.cluster.watch.metrics import ClusterMetrics
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace
from delaylog.broker.engine.membership import Membership
from delaylog.broker.engine.setup import Setup
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.host.addresses import host_port
from delaylog.broker.host.audit.audit_log import AuditLog
from delaylog.broker.host.audit.files import FOLDER, AuditFiles
from delaylog.broker.host.audit.metrics import AuditMetrics
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.config import Config
from delaylog.broker.host.exit_codes import End, end_of
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.metrics.metrics import Metrics
from delaylog.broker.host.metrics.minute_log import MinuteLog
from delaylog.broker.host.metrics.reload_metrics import ReloadMetrics
from delaylog.broker.host.process import crash_trace, descriptors, process_memory
from delaylog.broker.host.process.collector import Collector
from delaylog.broker.host.process.folder_kind import check_folder
from delaylog.broker.host.process.folder_lock import lock_folder, retention_suspended
from delaylog.broker.host.process.service_manager import ServiceManager
from delaylog.broker.host.settings.options import ConfigError, cannot_listen
from delaylog.broker.host.snapshot_child import ChildRun
from delaylog.broker.host.tls.certificate_watch import CertificateWatch
from delaylog.broker.host.tls.certificates import Hosts
from delaylog.broker.host.tls.client_tls import ClientTls
from delaylog.broker.host.tls.server_tls import ServerTls
from delaylog.broker.host.watch.logs import logs_are_json
from delaylog.broker.host.watch.loop_lag import StallTrace
from delaylog.broker.host.watch.reloader import Reloader
from delaylog.broker.host.watch.start_log import StartLog
from delaylog.broker.host.watch.timings import note_recovery
from delaylog.broker.push.starting import start_pusher
from delaylog.broker.web.app import HttpFace
from delaylog.broker.web.camellia import CamelliaFace
from delaylog.broker.web.oidc import OidcIssuer
from delaylog.broker.web.request_checks import RequestChecks, host_name
from delaylog.replication.errors import ReplicationError
from delaylog.storage.errors import StorageError, damage_of
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.spare_descriptors import hold_spares

if TYPE_CHECKING:
    from delaylog.broker.resp.face import RespFace

SWITCH_SECONDS = 0.0005
"""Switch interval of threads; with Python's default the loop notices an fsync's end 5 ms late."""

AUDIT_ID_BYTES: Final = 16

READY_SECONDS: Final = 30.0
"""How long the service manager waits for a member that finds no leader. After that it is told that
the node is ready, since it may start the nodes of a cluster one after the other."""
READY_LOOK_SECONDS: Final = 0.1

log = logging.getLogger("delaylog.serve")


def _end_on_bugs(
    loop: asyncio.AbstractEventLoop, on_fatal: Callable[[BaseException], None]
) -> None:
    """End the node on an error in a callback of this package.

    The callback did not finish its work, and tasks that wait for that work would wait for ever.
    Errors of connections and their requests do not end the node.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception) and _is_ours(error):
            on_fatal(error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def _is_ours(error: BaseException) -> bool:
    """Whether the loop called a function of this package, by the outermost frame above the loop."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("asyncio", "uvloop")):
            return module.startswith("delaylog.")
    return False


async def _serve(config: Config, *, as_json: bool) -> int:
    clock = BrokerClock(
        on_step=lambda ms: log.warning("the wall clock stepped", extra={"step_ms": ms})
    )
    stop, failed = asyncio.Event(), asyncio.Event()
    place: ClusterNode | None = None
    failure: list[BaseException] = []
    recovery: dict[str, Histogram] = {}
    hold = config.hold
    manager = ServiceManager()

    def on_fatal(error: BaseException) -> None:
        if not failure:
            failure.append(error)
            log.critical("the node stops", exc_info=error)
            damage = damage_of(error)
            if damage is not None and place is not None:
                place.note_damage(damage)
        failed.set()

    def make_engine(
        member: Membership | None = None, loaded: LoadedKeyspace | None = None
    ) -> Engine:
        nonlocal hold
        started = StartLog(REAL.steady_s)
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
                hold=hold,
                archive_hold=config.archive_hold,
            ),
            now_ms=clock.now_ms(),
            member=member,
            loaded=loaded,
        )
        # Once for the process: an operator may release the broker before the next engine.
        hold = None
        note_recovery(recovery, started.ended())
        return engine

    tls, nodes_tls = None, None
    reloader, certificates = Reloader(REAL), CertificateWatch(REAL)
    reloader.after = certificates.look
    if config.tls_ca is not None:
        nodes_tls = ClientTls(config.tls_ca)
        reloader.register("tls-ca", nodes_tls.files, nodes_tls.read)
        certificates.add(nodes_tls)
    if config.tls is not None:
        tls = ServerTls(config.tls)
        reloader.register("tls", tls.files, tls.read)
        certificates.add(tls)
    collector = Collector()
    collector.prepare()
    _end_on_bugs(asyncio.get_running_loop(), on_fatal)
    if config.cluster is None:
        node = ServingNode(make_engine(), clock, on_fatal, fsync=config.fsync, machine=REAL)
        clock.hold_from(node.engine.started_ms)
    else:
        place = await open_cluster_node(config, clock, make_engine, on_fatal, REAL)
        node = place.node
        if (secret := place.member.config.secret).files:
            reloader.register("cluster-secret", secret.files, place.read_secret)
        if (peer_tls := place.member.config.tls) is not None:
            reloader.register("cluster-tls", peer_tls.files, peer_tls.read)
            certificates.add(peer_tls)
            peer_tls.hosts = names_of_node(place.member.config.me)
        place.member.watch.certificates = certificates.facts
    if tls is not None:
        tls.hosts = _hosts(config, place)
        tls.roots = tls.roots if nodes_tls is None else nodes_tls.roots
    node.reloader = reloader
    node.timings.recovery = recovery
    clock.on_jump = node.clock_jumped
    _set_access(node, config)
    if clock.ahead_ms:
        log.warning(
            "the wall clock is behind the broker's clock, which waits until wall time has caught "
            "up or the step is accepted (POST /v1/clock)",
            extra={"held_ms": clock.ahead_ms},
        )
    camellia = CamelliaFace(node, nodes_tls=nodes_tls)

    def files_pinned() -> bool:
        # Messages come before backups: a broker that needs the space removes files, and a backup
        # that misses them starts again or fails with an error.
        enough = node.free_bytes() >= 2 * config.limits.disk_reserve_bytes
        return enough and retention_suspended(config.data_dir)

    node.files_pinned = files_pinned
    metrics = Metrics(node)
    if place is not None:
        metrics.registry.register(ClusterMetrics(place.member))
    index = 0 if place is None else place.member.config.node
    audit_files = AuditFiles(
        OsFileSystem(),
        f"{config.data_dir}/{FOLDER}",
        index,
        config.audit,
        REAL.random_bytes(AUDIT_ID_BYTES).hex(),
    )
    audit = AuditLog(audit_files, config.audit, REAL, node.space.make_room)
    metrics.registry.register(AuditMetrics(audit))
    metrics.registry.register(ReloadMetrics(reloader))
    metrics.registry.register(certificates)
    node.access.audit_head = audit.head
    face = HttpFace(node, metrics, camellia, _checks(config, place), audit)
    resp: RespFace | None = None
    if config.resp is not None:
        # A broker without Redis clients starts faster without importing their commands.
        from delaylog.broker.resp.metrics import RespMetrics
        from delaylog.broker.resp.starting import listen, make_face

        resp = make_face(node, config.resp, audit)
        metrics.registry.register(RespMetrics(resp.executor))
        redis = resp
        metrics.connections["resp"] = lambda: redis.open_connections
        face.other_connections = lambda: redis.open_connections
        resp.other_connections = lambda: face.connections
    oidc = None if config.oidc is None else OidcIssuer(config.oidc, node)
    if oidc is not None:
        node.access.authenticator.foreign = oidc.caller
        await oidc.start()
    node.start()
    audit.start()
    if config.log_level == "debug":
        StallTrace(node.loop_lag).start()
    asked = config.http_host, config.http_port
    try:
        port = await face.start(*asked, tls)
    except OSError as error:
        raise cannot_listen(f"{host_port(asked)} (--http)", error) from None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def reload() -> None:
        now_us = int(REAL.steady_s() * 1_000_000)
        manager.notify(RELOADING=1, MONOTONIC_USEC=now_us)
        reloader.reload_soon().add_done_callback(lambda _: manager.notify(READY=1))

    loop.add_signal_handler(signal.SIGHUP, reload)
    listening = {"http": host_port((config.http_host, port))}
    if resp is not None and config.resp is not None:
        listening["resp"] = await listen(resp, config.resp, tls)
    if place is not None:
        await place.start()
        _warn_of_ports(config, place, port)
        listening["peer"] = host_port(place.member.config.me.peer)
    pusher = start_pusher(node, config.push, listening, on_fatal, metrics.registry)
    collector.start()
    reloader.start()
    certificates.start()
    minutes = MinuteLog(node, config.data_dir)
    minutes.start()
    if as_json:
        print(orjson.dumps({"ready": listening}).decode(), flush=True)
    else:
        print("ready", *(f"{name}={at}" for name, at in listening.items()), flush=True)
    log.info("serving", extra={"http": listening["http"], "data_dir": config.data_dir})
    telling = loop.create_task(_tell_ready(manager, node))

    async def serve_until_told() -> None:
        await stop.wait()
        log.info("stopping")
        telling.cancel()
        manager.notify(STOPPING=1)
        reloader.stop()
        certificates.stop()
        await minutes.stop()
        await pusher.stop()
        await face.close_listener()
        if resp is not None:
            await resp.close_listener()
        if place is not None:
            await place.leave()
        node.waiters.close()
        if oidc is not None:
            oidc.stop()
        await face.stop()
        if resp is not None:
            await resp.stop()
        if place is not None:
            await place.member.stop()
        node.access.record_audit_head()
        await node.stop()
        await audit.stop()
        if place is not None:
            place.files.close()

    # Stop waiting also when the disk fails during the shutdown.
    served = loop.create_task(serve_until_told())
    await asyncio.wait([served, loop.create_task(failed.wait())], return_when="FIRST_COMPLETED")
    if not failure and (broken := served.exception()) is not None:
        on_fatal(broken)
    if failure:
        # The disk or the state cannot be trusted: exit at once, since everything is in the log.
        # The loop is not closed: what it would still start while closing, for example an incoming
        # connection, would print errors after this line.
        end = end_of(failure[0], has_peers=_has_peers(place))
        _say(f"the node stops: {end.line(failure[0])}", end)
        _leave(end.code)
    log.info("stopped")
    return 0


async def _tell_ready(manager: ServiceManager, node: ServingNode) -> None:
    """Tell the service manager that the node takes work, or why it does not in READY_SECONDS."""
    cluster, waited_s, why = node.role.cluster, 0.0, None
    while manager.listens and cluster is not None and waited_s < READY_SECONDS:
        before, why = why, cluster.not_ready()
        if why is None:
            break
        if why != before:
            manager.notify(STATUS=why)
        await asyncio.sleep(READY_LOOK_SECONDS)
        waited_s += READY_LOOK_SECONDS
    manager.notify(READY=1, STATUS=why or "serving")


def _set_access(node: ServingNode, config: Config) -> None:
    """Require authentication wherever other machines reach the node, unless it is switched off."""
    authenticator = node.access.authenticator
    node.access.expect_first_admin(config.admin_token)
    authenticator.switched_off = config.no_auth
    authenticator.always_required = (
        config.open_to_others
        or config.admin_token is not None
        or config.oidc is not None
        or is_awaited(node.engine.fs, config.data_dir)
    )
    begins = config.cluster is None or config.new_cluster
    known = config.admin_token is not None or config.oidc is not None
    if begins and authenticator.required and not known and not _has_principal(node, config):
        log.warning(
            "every call is refused, since there is no principal: stop this node and run "
            "`delaylog init` on its data folder, or set DELAYLOG_ADMIN_TOKEN"
        )
    if config.no_auth:
        log.warning("authentication is switched off by --insecure=no-auth: anyone may do anything")
    if config.no_tls and config.tls is None:
        log.warning(
            "TLS is switched off by --insecure=no-tls: everyone on the way may read and change "
            "messages and tokens"
        )


def _has_principal(node: ServingNode, config: Config) -> bool:
    """Whether the log has a principal, or will have the one of `delaylog init`."""
    state = node.engine.state
    return bool(state.access.principals) or is_awaited(state.fs, config.data_dir)


def _hosts(config: Config, place: ClusterNode | None) -> Hosts:
    """The names and addresses at which clients call this node."""
    return Hosts(
        () if place is None else told_to_clients(place.member.config.me),
        tuple(config.called_at),
    )


def _checks(config: Config, place: ClusterNode | None) -> RequestChecks:
    """Checks with the host names of this node: configured ones and those of the cluster file."""
    hosts = [config.http_host, *config.http_hosts]
    if place is not None:
        urls = [member.http_url for member in place.member.config.members]
        hosts += [host_name(url.partition("://")[2]) for url in urls]
    return RequestChecks(hosts, config.http_allowed_origins)


def _warn_of_ports(config: Config, place: ClusterNode, http_port: int) -> None:
    resp_port = None if config.resp is None else config.resp.port
    me, has_tls = place.member.config.me, config.tls is not None
    for text in unlike_options(me, http_port, resp_port, has_tls=has_tls):
        log.warning(text)


def _has_peers(place: ClusterNode | None) -> bool:
    """Whether other nodes may have a copy of the folder."""
    return place is not None and bool(place.member.config.others)


def _say(text: str, end: End) -> None:
    """The last line of a node that fails, in the form of its log."""
    if logs_are_json():
        log.critical(text, extra={"status": int(end.code), "end": end.code.name.lower()})
    else:
        print(f"delaylog: {text}", file=sys.stderr)


def serve(config: Config, *, as_json: bool = False) -> int:
    """Run a node; returns the exit status. `as_json`: the ready line is JSON."""
    try:
        return _run(config, as_json=as_json)
    except Exception as error:
        # Every expected error says in one line what is wrong.
        expected = isinstance(error, (ConfigError, ReplicationError, StorageError, OSError))
        if not expected:
            log.critical("the data folder cannot be served", exc_info=error)
        end = end_of(error)
        _say(end.line(error), end)
        _leave(end.code)


def _run(config: Config, *, as_json: bool) -> int:
    check_folder(config.data_dir, member=config.cluster is not None)
    lock = lock_folder(config.data_dir)
    crash_trace.watch(config.data_dir)
    process_memory.tune()
    process_memory.start_keeper()
    descriptors.raise_process_limit()
    hold_spares()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        try:
            import uvloop
        except ImportError:
            return asyncio.run(_serve(config, as_json=as_json))
        return uvloop.run(_serve(config, as_json=as_json))
    finally:
        os.close(lock)


def _leave(status: int) -> NoReturn:
    """End the process without joining threads, which may hang in calls to a failed disk."""
    sys.stderr.flush()
    os._exit(status)
