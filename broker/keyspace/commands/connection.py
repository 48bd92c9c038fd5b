"""Connections: PING, ECHO, SELECT, HELLO, AUTH, ACL WHOAMI, QUIT, RESET, and CLIENT.

CLIENT lists, names and closes connections.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import Option, Options, at_least, read_options
from delaylog.broker.keyspace.errors import CommandError, c_text, syntax
from delaylog.broker.keyspace.registry import COMMANDS, Run, command
from delaylog.broker.keyspace.replies import OK, PONG, Map, Reply, Status, Verbatim
from delaylog.broker.keyspace.running.session import Session, forget_watches
from delaylog.broker.keyspace.running.shared_state import DEFAULT, WRONG
from delaylog.broker.keyspace.values.number_texts import INT32_MAX, INT32_MIN, to_int

REDIS_VERSION: Final = b"7.0.15"
"""The version that clients see; they derive the available features from it."""
_FLAGS: Final = "noscript loading stale fast no_auth allow_busy"
_NO_PASSWORD: Final = (
    b"ERR AUTH <password> called without any password configured for the default user. "
    b"Are you sure your configuration is correct?"
)


@command("ping", -1, "connection", "fast sentinel pubsub")
def ping(run: Run, argv: Args) -> Reply:
    """Return PONG, or the argument."""
    if len(argv) > 2:
        raise CommandError(b"ERR wrong number of arguments for 'ping' command")
    session = run.session
    if session.resp == 2 and session.subscribed:
        return [b"pong", argv[1] if len(argv) == 2 else b""]
    return argv[1] if len(argv) == 2 else PONG


@command("echo", 2, "connection", "loading stale fast")
def echo(run: Run, argv: Args) -> Reply:
    """Return the argument."""
    return argv[1]


@command("select", 2, "connection", "loading stale fast")
def select(run: Run, argv: Args) -> Reply:
    """Select another database."""
    number = to_int(argv[1])
    if not INT32_MIN <= number <= INT32_MAX:
        refusal = b"ERR value is out of range, value must between %d and %d"
        raise CommandError(refusal % (INT32_MIN, INT32_MAX))
    databases = run.keyspace.databases
    if not 0 <= number < len(databases):
        raise CommandError(b"ERR DB index is out of range")
    run.session.database = databases[number]
    return OK


_TOO_SOON: Final = b"ERR a login from this address has just failed: try again in half a second"
"""A client that sends several secrets at once, or has logged in before, does not wait by itself."""


def _log_in(
    run: Run, session: Session, name: bytes, secret: bytes, then: Callable[[], Reply] | None
) -> Reply | None:
    """Authenticate a client; None once that is done. Raises CommandError.

    Where it is tried again soon, WAITS, and the reply is that of `then`; without it, nothing waits.
    """
    server = run.shared.server

    def attempt(again: Callable[[], Reply] | None) -> Reply | None:
        try:
            server.users.login(session, name, secret)
        except CommandError as error:
            if error.text == WRONG:
                waits = None if again is None else server.users.later(run, again)
                if waits is not None:
                    return waits
                server.failed_logins += 1
                server.on_wrong_password(session, secret)
                run.shared.on_denied(session, "unauthorized", b"auth")
            raise
        return None

    if server.login_wait_s(session, (secret,)) > 0:
        raise CommandError(_TOO_SOON)
    if then is None:
        return attempt(None)
    go_on = then
    return attempt(lambda: attempt(None) or go_on())


@command("auth", -2, "connection", _FLAGS)
def auth(run: Run, argv: Args) -> Reply:
    """Authenticate this connection: [user] token."""
    if len(argv) > 3:
        raise CommandError(b"ERR syntax error")
    name = argv[1] if len(argv) == 3 else DEFAULT
    if not run.shared.server.users.required:
        if len(argv) == 2:
            raise CommandError(_NO_PASSWORD)
        if name == DEFAULT:
            return OK
    return _log_in(run, run.session, name, argv[-1], lambda: OK) or OK


@command("hello", -1, "connection", _FLAGS)
def hello(run: Run, argv: Args) -> Reply:
    """Set the protocol version: [2|3 [AUTH user token] [SETNAME name]]."""
    session, users = run.session, run.shared.server.users
    resp = session.resp
    if len(argv) > 1:
        resp = to_int(argv[1], b"ERR Protocol version is not an integer or out of range")
        if resp not in (2, 3):
            raise CommandError(b"NOPROTO unsupported protocol version")

    def go_on(at: int, *, may_wait: bool = True) -> Reply:
        """Carry out the options from `at` on one by one, as Redis does, and greet."""
        while at < len(argv):
            word, values = argv[at].lower(), argv[at + 1 : at + 3]
            if word == b"setname" and values:
                _rename(session, values[0])
                at += 2
            elif word == b"auth" and len(values) == 2:
                at += 3
                if users.required or values[0] != DEFAULT:
                    then = partial(go_on, at, may_wait=False) if may_wait else None
                    waits = _log_in(run, session, values[0], values[1], then)
                    if waits is not None:
                        return waits
            else:
                raise CommandError(b"ERR Syntax error in HELLO option '%b'" % c_text(argv[at]))
        if not session.authenticated:
            raise CommandError(
                b"NOAUTH HELLO must be called with the client already authenticated, otherwise the "
                b"HELLO AUTH <user> <pass> option can be used to authenticate the client and "
                b"select the RESP protocol version at the same time"
            )
        session.resp = resp
        session.update_special()
        role = run.shared.server.role()
        members: list[Reply] = [b"server", b"redis", b"version", REDIS_VERSION, b"proto", resp]
        members += [b"id", session.number, b"mode", b"standalone"]
        members += [b"role", b"replica" if role == b"slave" else b"master", b"modules", []]
        return Map(members)

    return go_on(2)


def _rename(session: Session, name: bytes) -> None:
    _check_name(name, b"Client names")
    session.name = name


def _check_name(name: bytes, what: bytes) -> None:
    """Check a name for CLIENT LIST. Raises CommandError."""
    if any(not 33 <= char <= 126 for char in name):
        raise CommandError(b"ERR %b cannot contain spaces, newlines or special characters." % what)


@command("acl|whoami", 2, "server", "noscript loading stale own")
def acl_whoami(run: Run, argv: Args) -> Reply:
    """Return the user name of this connection."""
    return run.session.user


@command("quit", -1, "connection", _FLAGS + " pubsub now")
def quit_(run: Run, argv: Args) -> Reply:
    """Close this connection."""
    run.session.closing = True
    return OK


@command("reset", 1, "connection", _FLAGS + " pubsub now")
def reset(run: Run, argv: Args) -> Reply:
    """Reset this connection to the state of a new one."""
    session = run.session
    session.queue, session.failed_multi = None, False
    forget_watches(session)
    run.shared.pubsub.leave(session)
    session.database = run.keyspace.databases[0]
    session.resp = 2
    session.name = b""
    session.user = DEFAULT
    session.caller = session.restricted = None
    session.limited = False
    run.shared.server.users.enter(session)
    session.update_special()
    return Status(b"RESET")


# --------------------------------------------------------------------------------------- CLIENT

_CLIENT_FLAGS: Final = "noscript loading stale"
_ADMIN: Final = "admin " + _CLIENT_FLAGS
_TYPES: Final = {
    b"normal": b"normal",
    b"pubsub": b"pubsub",
    b"master": b"master",
    b"slave": b"slave",
    b"replica": b"slave",
}


# ---------------------------------------------------------------------- oneself


@command("client|id", 2, "connection", _CLIENT_FLAGS)
def client_id(run: Run, argv: Args) -> Reply:
    """Return the number of this connection."""
    return run.session.number


@command("client|getname", 2, "connection", _CLIENT_FLAGS)
def client_getname(run: Run, argv: Args) -> Reply:
    """Return the name of this connection."""
    return run.session.name or None


@command("client|setname", 3, "connection", _CLIENT_FLAGS)
def client_setname(run: Run, argv: Args) -> Reply:
    """Set the name of this connection; an empty one removes it."""
    _rename(run.session, argv[2])
    return OK


@command("client|setinfo", 4, "connection", _CLIENT_FLAGS)
def client_setinfo(run: Run, argv: Args) -> Reply:
    """Set the client library of this connection: LIB-NAME name, LIB-VER version."""
    which, value = argv[2].lower(), argv[3]
    if which not in (b"lib-name", b"lib-ver"):
        raise CommandError(b"ERR Unrecognized option '%b'" % c_text(argv[2]))
    _check_name(value, which)
    if which == b"lib-name":
        run.session.library = value
    else:
        run.session.library_version = value
    return OK


@command("client|info", 2, "connection", _CLIENT_FLAGS)
def client_info(run: Run, argv: Args) -> Reply:
    """Describe this connection, as in CLIENT LIST."""
    return Verbatim(line_of(run, run.session))


# ---------------------------------------------------------------------- others


def type_of(session: Session) -> bytes:
    """Return the TYPE of a client."""
    return b"pubsub" if session.subscribed else b"normal"


def _flags(session: Session) -> bytes:
    flags = b""
    if session.subscribed:
        flags += b"P"
    if session.queue is not None:
        flags += b"x"
    if session.is_blocked:
        flags += b"b"
    if session.dirty_watch:
        flags += b"d"
    if session.closing:
        flags += b"c"
    return flags or b"N"


def _last_command(run: Run, session: Session) -> bytes:
    if session is run.session and run.command is not None:
        return run.command.name
    if session.blocked is not None:
        return session.blocked.command.name
    word = session.used_word.lower()
    return word if word in COMMANDS else b"NULL"


def line_of(run: Run, session: Session) -> bytes:
    """Return a client's line in CLIENT LIST. The host has the buffers, so they are 0 here."""
    now_ms = run.now_ms
    members: list[tuple[bytes, bytes | int]] = [
        (b"id", session.number),
        (b"addr", session.address),
        (b"laddr", session.local_address),
        (b"fd", session.descriptor),
        (b"name", session.name),
        (b"age", max(now_ms - session.created_ms, 0) // 1000),
        (b"idle", max(now_ms - session.used_ms, 0) // 1000),
        (b"flags", _flags(session)),
        (b"db", session.database.number),
        (b"sub", len(session.channels)),
        (b"psub", len(session.patterns)),
        (b"ssub", 0),
        (b"multi", -1 if session.queue is None else len(session.queue)),
        *((name, 0) for name in (b"qbuf", b"qbuf-free", b"argv-mem", b"multi-mem")),
        *((name, 0) for name in (b"rbs", b"rbp", b"obl", b"oll", b"omem", b"tot-mem")),
        (b"events", b"r"),
        (b"cmd", _last_command(run, session)),
        (b"user", session.user if session.authenticated else b"(superuser)"),
        (b"redir", -1),
        (b"resp", session.resp),
        # Fields of Redis 7.2 and newer, for clients that read them.
        (b"lib-name", session.library),
        (b"lib-ver", session.library_version),
    ]
    return b" ".join(
        b"%b=%b" % (name, value if isinstance(value, bytes) else b"%d" % value)
        for name, value in members
    )


@command("client|list", -2, "connection", _ADMIN)
def client_list(run: Run, argv: Args) -> Reply:
    """List connections: [TYPE type] or [ID id ...]."""
    sessions = run.shared.sessions
    shown = list(sessions.values())
    if len(argv) > 2:
        option = argv[2].lower()
        if option == b"type" and len(argv) == 4:
            wanted = _type(argv[3])
            shown = [session for session in shown if type_of(session) == wanted]
        elif option == b"id" and len(argv) > 3:
            numbers = [to_int(text, b"ERR Invalid client ID") for text in argv[3:]]
            shown = [sessions[number] for number in numbers if number in sessions]
        else:
            raise syntax()
    return Verbatim(b"".join(line_of(run, session) + b"\n" for session in shown))


def _type(word: bytes) -> bytes:
    known = _TYPES.get(word.lower())
    if known is None:
        raise CommandError(b"ERR Unknown client type '%b'" % c_text(word))
    return known


@command("client|kill", -3, "connection", _ADMIN)
def client_kill(run: Run, argv: Args) -> Reply:
    """Close clients: address, or [ID n] [TYPE t] [ADDR a] [LADDR a] [SKIPME yes|no]."""
    sessions = list(run.shared.sessions.values())
    if len(argv) == 3:
        for session in sessions:
            if session.address == argv[2]:
                _end(run, session)
                return OK
        raise CommandError(b"ERR No such client")
    options = read_options(argv, 2, _KILL_OPTIONS)
    skips_me = options.value("skipme", True)
    filters = [(name, read) for name, read in _READERS.items() if name in options]
    ended = 0
    for session in sessions:
        if session is run.session and skips_me:
            continue
        if all(read(session) == options.value(name) for name, read in filters):
            _end(run, session)
            ended += 1
    return ended


_READERS: Final[dict[str, Callable[[Session], bytes | int]]] = {
    "id": lambda session: session.number,
    "type": type_of,
    "addr": lambda session: session.address,
    "laddr": lambda session: session.local_address,
}
"""The values that the filters of CLIENT KILL compare."""


def _skipme(text: bytes) -> bool:
    if text.lower() not in (b"yes", b"no"):
        raise syntax()
    return text.lower() == b"yes"


_KILL_OPTIONS: Final[Options] = {
    b"id": Option("id", at_least(1, b"ERR client-id should be greater than 0")),
    b"type": Option("type", _type),
    b"addr": Option("addr", bytes),
    b"laddr": Option("laddr", bytes),
    b"skipme": Option("skipme", _skipme),
}


def _end(run: Run, session: Session) -> None:
    """Close a connection; the caller's own after the reply."""
    if session is run.session:
        session.closing = True
        return
    run.shared.waits.end(session)
    session.kill()
