"""The connection itself: PING, ECHO, SELECT, HELLO, AUTH, ACL WHOAMI, QUIT, RESET."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.options import Option, Options, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, PONG, Map, Reply, Status
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.running.watching import forget_watches
from delaylog.broker.keyspace.users import DEFAULT, WRONG
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


def _log_in(run: Run, name: bytes, secret: bytes, then: Callable[[], Reply]) -> Reply:
    """Authenticate a client, and return the reply of `then`. Raises CommandError."""
    server, session = run.shared.server, run.session

    def refused() -> None:
        server.failed_logins += 1
        server.on_wrong_password(session, secret)
        run.shared.on_denied(session, "unauthorized", b"auth")

    def again() -> Reply:
        try:
            server.users.login(session, name, secret)
        except CommandError as error:
            if error.text == WRONG:
                refused()
            raise
        return then()

    if server.login_wait_s(session, (secret,)) > 0:
        raise CommandError(_TOO_SOON)
    try:
        server.users.login(session, name, secret)
    except CommandError as error:
        if error.text == WRONG:
            later = server.users.later(run, again)
            if later is not None:
                return later
            refused()
        raise
    return then()


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
    return _log_in(run, name, argv[-1], lambda: OK)


def _bad_hello(word: bytes) -> CommandError:
    return CommandError(b"ERR Syntax error in HELLO option '%b'" % word)


def _name(text: bytes) -> bytes:
    check_name(text)
    return text


_HELLO_OPTIONS: Final[Options] = {
    b"auth": Option("login", bytes, 2),
    b"setname": Option("name", _name),
}


@command("hello", -1, "connection", _FLAGS)
def hello(run: Run, argv: Args) -> Reply:
    """Set the protocol version: [2|3 [AUTH user token] [SETNAME name]]."""
    session = run.session
    resp = session.resp
    if len(argv) > 1:
        resp = to_int(argv[1], b"ERR Protocol version is not an integer or out of range")
        if resp not in (2, 3):
            raise CommandError(b"NOPROTO unsupported protocol version")
    options = read_options(argv, 2, _HELLO_OPTIONS, _bad_hello)
    login = options.value("login")

    def greet() -> Reply:
        session.name = options.value("name", session.name)
        session.resp = resp
        session.update_special()
        role = run.shared.server.role()
        members: list[Reply] = [b"server", b"redis", b"version", REDIS_VERSION, b"proto", resp]
        members += [b"id", session.number, b"mode", b"standalone"]
        members += [b"role", b"replica" if role == b"slave" else b"master", b"modules", []]
        return Map(members)

    if login is not None and (run.shared.server.users.required or login[0] != DEFAULT):
        name, secret = login
        return _log_in(run, name, secret, greet)
    if not session.authenticated:
        raise CommandError(
            b"NOAUTH HELLO must be called with the client already authenticated, otherwise the "
            b"HELLO AUTH <user> <pass> option can be used to authenticate the client and select "
            b"the RESP protocol version at the same time"
        )
    return greet()


def check_name(name: bytes, what: bytes = b"Client names") -> None:
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
