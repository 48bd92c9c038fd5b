"""Configuration: which source wins, and errors that name what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from delaylog.broker.host.config import TlsConfig, load_config, parse_address
from delaylog.broker.host.settings import OPTIONS, ConfigError
from delaylog.broker.host.watch.audit_files import AuditSettings
from delaylog.broker.rules.push_addresses import AddressRules
from delaylog.extras import PUSH


def write(folder: Path, text: str | bytes) -> str:
    """A TOML file; returns its path."""
    path = folder / "delaylog.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_defaults() -> None:
    """With nothing given the documented defaults hold."""
    config = load_config({}, {})
    assert config.data_dir == "./delaylog-data"
    assert (config.http_host, config.http_port) == ("127.0.0.1", 8711)
    assert config.fsync == "always"
    assert config.limits.body_bytes_max == 4 << 20
    assert config.limits.request_bytes_max == 64 << 20


def test_precedence(tmp_path: Path) -> None:
    """Flags win over variables, those over the file, that over the defaults."""
    path = write(tmp_path, 'http = "127.0.0.1:1"\nfsync = "interval"\nlog_level = "debug"\n')
    from_file = load_config({"config": path}, {})
    assert (from_file.http_port, from_file.fsync, from_file.log_level) == (1, "interval", "debug")
    variables = {"DELAYLOG_HTTP": "127.0.0.1:2", "DELAYLOG_FSYNC": "always"}
    mixed = load_config({"config": path}, variables)
    assert (mixed.http_port, mixed.fsync, mixed.log_level) == (2, "always", "debug")
    flags = {"config": path, "http": "127.0.0.1:3", "fsync": None}
    assert load_config(flags, variables).http_port == 3
    assert load_config(flags, variables).fsync == "always"


def test_a_cluster_takes_no_lax_dial() -> None:
    """What a majority has synced must stay there; and the first start of a cluster needs one."""
    config = load_config({"cluster": "c.toml", "new_cluster": True}, {"DELAYLOG_NODE": "2"})
    assert (config.cluster, config.cluster_node, config.new_cluster) == ("c.toml", "2", True)
    with pytest.raises(ConfigError, match="fsync must be always in a cluster"):
        load_config({"cluster": "c.toml", "fsync": "interval"}, {})
    with pytest.raises(ConfigError, match="new-cluster requires --cluster"):
        load_config({"new_cluster": True}, {})


def test_file_by_variable(tmp_path: Path) -> None:
    """DELAYLOG_CONFIG names the file when no flag does."""
    path = write(tmp_path, "[limits]\nreceive_max = 5\n")
    assert load_config({}, {"DELAYLOG_CONFIG": path}).limits.receive_max == 5


def test_each_option_in_each_source(tmp_path: Path) -> None:
    """Every option is a flag, a variable and a TOML key."""
    values = {
        "data_dir": "d",
        "http": "h:5",
        "fsync": "interval",
        "insecure": "no-auth,no-tls",
        "log_level": "error",
        "log_format": "text",
    }
    assert values.keys() <= {option.key for option in OPTIONS}
    lines = "".join(f'{key} = "{value}"\n' for key, value in values.items())
    for flags, variables in (
        (values, {}),
        ({}, {f"DELAYLOG_{key.upper()}": value for key, value in values.items()}),
        ({"config": write(tmp_path, lines)}, {}),
    ):
        config = load_config(flags, variables)
        assert (config.data_dir, config.http_host, config.http_port) == ("d", "h", 5)
        assert (config.fsync, config.log_level, config.log_format) == ("interval", "error", "text")


@pytest.mark.parametrize(
    ("text", "place"),
    [("a:1", ("a", 1)), ("[::1]:80", ("::1", 80)), ("0.0.0.0:0", ("0.0.0.0", 0))],
)
def test_addresses(text: str, place: tuple[str, int]) -> None:
    """Host and port, IPv6 in brackets."""
    assert parse_address(text, "http") == place


@pytest.mark.parametrize(
    "text", ["", "a", ":1", "a:", "a:b", "a:65536", "a:-1", "a:²", "a:1:", "[]:1"]
)
def test_bad_addresses(text: str) -> None:
    """What is no HOST:PORT is refused by name."""
    with pytest.raises(ConfigError, match="http must be HOST:PORT"):
        load_config({"http": text}, {})


BAD_FILES = {
    "no TOML": ("http = ", "is not TOML"),
    "no UTF-8": (b"\xff\xfe", "is not TOML"),
    "unknown key": ("colour = 1", "colour"),
    "a number for text": ("data_dir = 5", "data_dir"),
    "a list for text": ("http = ['a:1']", "http"),
    "true for text": ("fsync = true", "fsync"),
    "bad choice": ("fsync = 'never'", "fsync"),
    "bad level": ("log_level = 'loud'", "log-level"),
    "bad format": ("log_format = 'xml'", "log-format"),
    "limits no table": ("limits = 5", "limits"),
    "unknown limit": ("[limits]\ncolour = 1", "colour"),
    "limit a text": ("[limits]\nreceive_max = '5'", "receive_max"),
    "limit a float": ("[limits]\nreceive_max = 5.5", "receive_max"),
    "limit true": ("[limits]\nreceive_max = true", "receive_max"),
    "limit negative": (
        "[limits]\nreceive_max = -5",
        "limits.receive_max is -5; set it between 0 and",
    ),
    "a time without end": (
        "[limits]\nhorizon_ms = 9223372036854775807",
        "horizon_ms is 9,223,372,0",
    ),
    "a count without end": (
        "[limits]\nreceive_max = 9223372036854775807",
        "receive_max is 9,223,372,0",
    ),
    "no connections": (
        "[limits]\nconnections_max = 0",
        "connections_max is 0; set it between 1 and",
    ),
    "more than a frame": ("[limits]\nrequest_bytes_max = 268435456", "set it between 0 and 268,43"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(tmp_path: Path, name: str) -> None:
    """A file that says nonsense is refused, naming the key."""
    text, expected = BAD_FILES[name]
    with pytest.raises(ConfigError, match=expected):
        load_config({"config": write(tmp_path, text)}, {})


def test_no_file(tmp_path: Path) -> None:
    """A file that cannot be read is named."""
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            load_config({"config": str(path)}, {})


def test_bad_variables() -> None:
    """A bad variable is refused by the option's name."""
    with pytest.raises(ConfigError, match="fsync"):
        load_config({}, {"DELAYLOG_FSYNC": "sometimes"})
    with pytest.raises(ConfigError, match="http"):
        load_config({}, {"DELAYLOG_HTTP": " "})


def test_an_empty_variable_counts_as_absent(tmp_path: Path) -> None:
    """As in a compose file that hands on a variable which may not be set."""
    names = (*(option.variable for option in OPTIONS), "DELAYLOG_ADMIN_TOKEN", "DELAYLOG_CONFIG")
    empty = dict.fromkeys(names, "")
    assert load_config({}, empty) == load_config({}, {})
    file = tmp_path / "delaylog.toml"
    file.write_text('http = "127.0.0.1:1"\n')
    assert load_config({"config": str(file)}, empty).http_port == 1


def test_ended_hours_are_held_when_it_is_said(tmp_path: Path) -> None:
    """By each of the sources; off is the default."""
    assert not load_config({}, {}).archive_hold
    assert load_config({"archive_hold": "on"}, {}).archive_hold
    assert load_config({}, {"DELAYLOG_ARCHIVE_HOLD": "on"}).archive_hold
    assert load_config({"config": write(tmp_path, 'archive_hold = "on"\n')}, {}).archive_hold
    with pytest.raises(ConfigError, match="archive-hold must be one of off, on"):
        load_config({"archive_hold": "yes"}, {})


def test_audit(tmp_path: Path) -> None:
    """Administrative and changing calls by default."""
    assert load_config({}, {}).audit == AuditSettings("changes")
    found = load_config({"config": write(tmp_path, 'audit = "all"\n')}, {}).audit
    assert found == AuditSettings("all")
    with pytest.raises(ConfigError, match="audit must be one of changes, all, off"):
        load_config({"audit": "some"}, {})


OPEN = [
    ({"http": "0.0.0.0:1"}, "http 0.0.0.0:1 is open to other machines without TLS"),
    ({"http": "[::]:1"}, "http"),
    ({"http": "10.0.0.1:1"}, "http"),
    ({"http": "broker.internal:1"}, "http"),
    ({"resp": "0.0.0.0:1"}, "resp 0.0.0.0:1 is open to other machines without TLS"),
]


@pytest.mark.parametrize(("flags", "expected"), OPEN)
def test_listeners_without_tls_stay_on_loopback(flags: dict[str, str], expected: str) -> None:
    """One line says what to do; --insecure=no-tls, from any source, accepts it."""
    for insecure in ("", "no-auth"):
        with pytest.raises(ConfigError, match=expected) as refused:
            load_config({**flags, "insecure": insecure}, {})
        assert "give --tls-cert FILE, or accept it with --insecure=no-tls" in str(refused.value)
        assert "\n" not in str(refused.value)
    assert load_config({**flags, "insecure": "no-tls"}, {}).tls is None
    both = load_config(flags, {"DELAYLOG_INSECURE": "no-auth, no-tls"})
    assert (both.no_auth, both.no_tls) == (True, True)
    secure = load_config({**flags, "tls_cert": "cert.pem"}, {})
    assert (secure.no_auth, secure.no_tls, secure.open_to_others) == (False, False, True)


CLOSED = [
    {"http": "127.0.0.1:1", "resp": "127.9.8.7:1"},
    {"http": "[::1]:1", "resp": "localhost:1"},
]


@pytest.mark.parametrize("flags", CLOSED)
def test_loopback_needs_no_leave(flags: dict[str, str]) -> None:
    config = load_config(flags, {})
    assert (config.no_auth, config.no_tls, config.open_to_others) == (False, False, False)


def test_only_known_insecurities_are_accepted() -> None:
    with pytest.raises(ConfigError, match="insecure must be no-auth or no-tls, comma-separated"):
        load_config({"insecure": "yes"}, {})


def test_tls() -> None:
    """One set of options for both listeners; what only makes sense with a certificate needs one."""
    assert load_config({}, {}).tls is None
    flags = {"tls_cert": "c", "tls_key": "k", "tls_client_ca": "a", "tls_policy": "modern"}
    assert load_config(flags, {}).tls == TlsConfig("c", "k", "a", "modern")
    assert load_config({"tls_cert": "c"}, {}).tls == TlsConfig("c")
    for name in ("tls-key", "tls-client-ca"):
        with pytest.raises(ConfigError, match=f"{name} requires tls-cert FILE"):
            load_config({name.replace("-", "_"): "x"}, {})


def test_names_and_origins(tmp_path: Path) -> None:
    """Lists between commas, checked one by one."""
    config = load_config({"http_host": "a, b.c", "http_allowed_origin": "https://a:8443"}, {})
    assert config.http_hosts == ("a", "b.c")
    assert config.http_allowed_origins == ("https://a:8443",)
    assert load_config({}, {}).http_hosts == ()
    for name, text in (
        ("http-host", "a:1"),
        ("http-host", "http://a"),
        ("http-host", "a,,b"),
        ("http-allowed-origin", "a.example"),
        ("http-allowed-origin", "https://a/path"),
        ("http-allowed-origin", "*"),
    ):
        with pytest.raises(ConfigError, match=name):
            load_config({name.replace("-", "_"): text}, {})


def test_what_pushes_may_reach() -> None:
    """Nothing inside unless networks are named; the ports of the web unless others are."""
    assert load_config({}, {}).leaves[PUSH] == AddressRules()
    said = {"push_allow": "10.1.0.0/16, fd00:1::/32", "push_ports": "443,8443"}
    rules = load_config(said, {}).leaves[PUSH]
    assert [str(network) for network in rules.allowed] == ["10.1.0.0/16", "fd00:1::/32"]
    assert rules.ports == {443, 8443}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("push-allow", "10.0.0.1/8"),
        ("push-allow", "example.com"),
        ("push-ports", ""),
        ("push-ports", "0"),
        ("push-ports", "65536"),
        ("push-ports", "http"),
    ],
)
def test_bad_rules_of_pushes(name: str, text: str) -> None:
    """The error names the setting and the value."""
    with pytest.raises(ConfigError, match=f"(?s){name}.*{text}"):
        load_config({name.replace("-", "_"): text}, {})
