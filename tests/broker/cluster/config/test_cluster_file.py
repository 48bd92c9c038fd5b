"""The cluster file: what it gives, which source wins, and errors that name what is wrong.

Method: one good file, and a table of changes to it with what the error must say.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from delaylog.broker.cluster.config import (
    ClusterConfig,
    KeyUse,
    check_founding,
    cluster_id_of,
    load_cluster,
    make_member,
)
from delaylog.replication.configuration import Configuration
from delaylog.replication.errors import ClusterError
from delaylog.replication.leader import Acks
from tests.certificates import self_signed, write_pair

SECRET = bytes(range(32)).hex()
HEAD = """
cluster = "orders"
secret_file = "cluster.secret"
node = 1
"""
ONE = '\n[members.0]\npeer = "10.0.0.1:8712"\nhttp = "10.0.0.1:8711"\n'
TWO = '\n[members.1]\npeer = "10.0.0.2:8712"\nhttp = "10.0.0.2:8711"\nname = "beta"\n'
THREE = """
[members.2]
peer = "10.0.0.3:8712"
election_port = 8800
http = "https://broker.example:443/"
resp = "[fe80::1]:8713"
"""
GOOD = HEAD + ONE + TWO + THREE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a good secret lies."""
    secret = tmp_path / "cluster.secret"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    return tmp_path


def load(folder: Path, text: str = GOOD, node: str | None = None, **environ: str) -> ClusterConfig:
    path = folder / "cluster.toml"
    path.write_text(text)
    return load_cluster(str(path), node=node, environ=environ)


def test_good_file(folder: Path) -> None:
    """All of it, with its defaults."""
    config = load(folder)
    assert (config.name, config.node, config.acks, config.tls) == ("orders", 1, Acks.QUORUM, None)
    assert config.cluster_id == cluster_id_of("orders")
    assert len(config.cluster_id) == 16
    assert cluster_id_of("orders") != cluster_id_of("order")
    assert [member.node for member in config.members] == [0, 1, 2]
    assert config.me.name == "beta"
    assert [member.name for member in config.others] == ["node-0", "node-2"]
    assert config.me.election == config.me.peer == ("10.0.0.2", 8712)
    third = config.member(2)
    assert third.election == ("10.0.0.3", 8800)
    assert third.http_url == "https://broker.example:443"
    assert third.resp == ("fe80::1", 8713)
    assert config.me.http_url == "http://10.0.0.2:8711"
    assert config.peers == {n: (f"10.0.0.{n + 1}", 8712) for n in range(3)}


def test_priority_and_zone(folder: Path) -> None:
    config = load(folder, GOOD + 'priority = 80\nzone = "north-1"\n')
    assert [(each.priority, each.zone) for each in config.members] == [
        (50, ""),
        (50, ""),
        (80, "north-1"),
    ]
    contacts = {each.node: each.contact for each in config.members}
    logged = Configuration.founding((0, 1, 2)).with_contacts(contacts, bytes(16))
    assert config.following(logged).member(2).zone == "north-1", "the log does not say it"
    for line, words in (
        ("priority = 101", "members.2.priority must be 0 to 100, not 101"),
        ("priority = true", "members.2.priority must be 0 to 100, not True"),
        ('zone = "a b"', "members.2.zone must be up to 64 letters"),
    ):
        with pytest.raises(ClusterError, match=words):
            load(folder, f"{GOOD}{line}\n")


def test_values_are_frozen_and_silent(folder: Path) -> None:
    """Nothing changes later, and a log of it shows no secret."""
    config = load(folder)
    assert SECRET not in repr(config)
    assert SECRET not in repr(config) + repr(config.secret) + str(config.secret)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.node = 2  # type: ignore[misc]


def test_a_cluster_of_one(folder: Path) -> None:
    """Grows later with the same file."""
    assert len(load(folder, HEAD.replace("1", "0") + ONE).members) == 1


def test_a_cluster_is_founded_with_an_odd_number(folder: Path) -> None:
    check_founding(load(folder).members)
    with pytest.raises(ClusterError, match=r"1, 3, 5, 7 nodes, not 2; an even number"):
        check_founding(load(folder, HEAD.replace("1", "2") + TWO + THREE).members)


def test_the_members_of_a_log_take_the_place_of_those_of_the_file(folder: Path) -> None:
    config = load(folder)
    moved = make_member(0, {"name": "zero", "peer": "10.0.0.9:1", "http": "h:2", "resp": "[::1]:3"})
    contacts = {0: moved.contact, 2: config.member(2).contact}
    log = Configuration((0,), learners=(2,), removed=(1,), version=4, contacts=contacts)
    later = config.following(Configuration.decode(log.encode()) or log)
    assert later.members == (moved, config.me, config.member(2)), "this node stays in any case"
    assert config.following(Configuration(())) == config, "the log says nothing of members yet"
    assert later.name_of(0) == "zero"
    assert later.name_of(7) == "node-7"


def test_which_node(folder: Path) -> None:
    """The flag wins over the variable, that over the file."""
    assert load(folder).node == 1
    assert load(folder, DELAYLOG_NODE="2").node == 2
    assert load(folder, node="0", DELAYLOG_NODE="2").node == 0
    shared = GOOD.replace("node = 1\n", "")
    assert load(folder, shared, node="2").me.election == ("10.0.0.3", 8800)
    with pytest.raises(ClusterError, match=r"which node is this.*--node.*DELAYLOG_NODE.*0, 1, 2"):
        load(folder, shared)
    with pytest.raises(ClusterError, match="--node is '7', which is none of the members: 0, 1, 2"):
        load(folder, node="7")
    with pytest.raises(ClusterError, match="DELAYLOG_NODE is 'x'"):
        load(folder, DELAYLOG_NODE="x")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('cluster = "orders"', "", r"^cluster is missing; up to 64 letters"),
        ('"orders"', "5", r"^cluster must be text in quotes, not 5"),
        ('"orders"', '"a b"', r"^cluster must be up to 64 letters.*'a b'"),
        ('"orders"', f'"{"x" * 65}"', r"^cluster must be up to 64"),
        ("node = 1", "node = 3", r"^node is 3, which is none of the members"),
        ("node = 1", "node = true", r"^node is True"),
        ("node = 1", "nodes = 1", r"^nodes is not a key of a cluster file; there are acks"),
        ("node = 1", 'node = 1\nacks = "two"', r"^acks must be one of leader, quorum, all"),
        ("node = 1", "node = 1\nacks = []", r"^acks must be one of leader, quorum, all"),
        (ONE + TWO + THREE, "", r"^members is missing; write \[members\.0\]"),
        (ONE + TWO + THREE, "members = 3", r"^members is missing"),
        ("members.0", "members.01", r"^members\.01: a member's index is a number from 0 to 65535"),
        ("members.0", "members.65536", r"^members\.65536: a member's index"),
        ("members.0", "members.first", r"^members\.first: a member's index"),
        (ONE, "[members]\n0 = 5", r"^members\.0 must be a table with peer and http, not 5"),
        ('name = "beta"', 'nam = "beta"', r"^members\.1\.nam is not a key of a cluster file.*name"),
        ('name = "beta"', 'name = ""', r"^members\.1\.name must be text in quotes, not ''"),
        ('name = "beta"', 'name = "2"', r"^members\.1\.name is '2', the index of another member"),
        ('name = "beta"', 'name = "node-0"', r"members\.1\.name and members\.0\.name are both"),
        ('peer = "10.0.0.1:8712"', "", r"^members\.0\.peer is missing; host and port, such as"),
        ("10.0.0.1:8712", "10.0.0.256:8712", r"^members\.0\.peer must be HOST:PORT"),
        ("10.0.0.1:8711", "10.0.0.256:8711", r"^members\.0\.http must be HOST:PORT"),
        ("10.0.0.1:8712", "[::]:8712", r"^members\.0\.peer: the others cannot connect"),
        ("10.0.0.1:8712", "[::ffff:224.0.0.1]:8712", r"^members\.0\.peer: the others"),
        ("10.0.0.1:8712", "al_pha:8712", r"^members\.0\.peer must be HOST:PORT"),
        ("node = 1", 'node = 1\nlisten = "host:1"', r"^listen must be a numeric address"),
        ("node = 1", 'node = 1\nlisten = "0.0.0.0"', r"^listen must be HOST:PORT"),
        ("10.0.0.1:8712", "10.0.0.1", r"^members\.0\.peer must be HOST:PORT, not '10.0.0.1'"),
        ("10.0.0.1:8712", "10.0.0.1:0", r"^members\.0\.peer: a port is 1 to 65535, not 0"),
        ("10.0.0.1:8712", "10.0.0.1:65536", r"^members\.0\.peer: a port is 1 to 65535"),
        ("10.0.0.1:8712", "0.0.0.0:8712", r"^members\.0\.peer: the others cannot connect"),
        ("10.0.0.1:8712", "224.0.0.1:8712", r"^members\.0\.peer: the others cannot connect"),
        ("8800", "0", r"^members\.2\.election_port must be 1 to 65535, not 0"),
        ("8800", '"8800"', r"^members\.2\.election_port must be 1 to 65535, not '8800'"),
        ("8800", "true", r"^members\.2\.election_port must be 1 to 65535, not True"),
        ("10.0.0.2:8712", "10.0.0.1:8712", r"members\.1\.peer and members\.0\.peer are both '10"),
        ("10.0.0.2:8711", "10.0.0.2:8712", r"members\.1\.http and members\.1\.peer are both"),
        ('http = "10.0.0.1:8711"', "", r"^members\.0\.http is missing; host and port"),
        ("10.0.0.1:8711", "ftp://10.0.0.1:1", r"^members\.0\.http must begin with http://"),
        ("10.0.0.1:8711", "-:1", r"^members\.0\.http must be HOST:PORT"),
        ("[fe80::1]", "[fe80::x]", r"^members\.2\.resp must be HOST:PORT"),
        ("node = 1", "node = 1\ntls = 1", r"^tls must be a table with ca, cert and key"),
        (ONE, ONE + '[tls]\nkeys = "x"',
         r"^tls\.keys is not a key of a cluster file; there are ca"),
        (ONE, ONE + '[tls]\ncert = "x"', r"^tls\.ca is missing; a file in PEM"),
        (ONE, ONE + '[tls]\nca = "none.pem"', r"^tls\.cert is missing"),
        (
            ONE,
            ONE + '[tls]\nca = "none.pem"\ncert = "none.pem"\nkey = "none.key"',
            r"^cannot read tls\.cert .*none\.pem: No such file",
        ),
        ("cluster.secret", "gone", r"^cannot read secret_file .*gone: No such file"),
        ('secret_file = "cluster.secret"', "", r"^secret_file is missing.*DELAYLOG_CLUSTER_SECRET"),
        ("node = 1", "node 1", r"^the cluster file .* is not TOML"),
    ],
)  # fmt: skip
def test_what_is_refused(folder: Path, old: str, new: str, says: str) -> None:
    """Each error names the key and what it may be."""
    assert old in GOOD
    with pytest.raises(ClusterError, match=says):
        load(folder, GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("peer", "listen", "address", "at"),
    [
        ("10.0.0.2:8712", "", ("10.0.0.2", 8712), ("10.0.0.2", 8712)),
        ("Beta.example:8712", "", ("beta.example", 8712), ("", 8712)),
        ("[fd00::2]:8712", "", ("fd00::2", 8712), ("fd00::2", 8712)),
        ("beta:8712", "10.0.0.2:1", ("beta", 8712), ("10.0.0.2", 1)),
        ("10.0.0.2:8712", "[::]:8712", ("10.0.0.2", 8712), ("::", 8712)),
        ("[::1]:8712", "", ("::1", 8712), ("::1", 8712)),
        ("[64:ff9b::a00:2]:8712", "", ("64:ff9b::a00:2", 8712), ("64:ff9b::a00:2", 8712)),
    ],
)
def test_where_a_node_is_and_listens(
    folder: Path, peer: str, listen: str, address: tuple[str, int], at: tuple[str, int]
) -> None:
    """A name's address may change, so its node listens on all; and the log has it as written."""
    text = GOOD.replace("10.0.0.2:8712", peer)
    if listen:
        text = f'listen = "{listen}"\n{text}'
    config = load(folder, text)
    assert config.me.peer == address
    assert config.peer_config().listen == at
    assert config.me.contact["peer"] == peer.lower()
    assert make_member(1, config.me.contact).peer == address


def test_two_elections_on_one_port(folder: Path) -> None:
    """Two nodes of one machine may share no UDP port either."""
    text = GOOD.replace("10.0.0.3:8712", "10.0.0.1:8719").replace("8800", "8712")
    with pytest.raises(ClusterError, match=r"members\.2\.election_port and members\.0\.election"):
        load(folder, text)


def test_one_address_written_in_two_ways(folder: Path) -> None:
    text = GOOD.replace("10.0.0.1:8712", "[FD00:0::1]:8712")
    assert load(folder, text).member(0).peer == ("fd00::1", 8712)
    with pytest.raises(ClusterError, match=r"members\.1\.peer and members\.0\.peer are both"):
        load(folder, text.replace("10.0.0.2:8712", "[fd00::1]:8712"))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"cannot read the cluster file .*none: No such file"):
        load_cluster(str(tmp_path / "none"), environ={})


def test_secret_by_variable(folder: Path) -> None:
    """It wins over the file, and needs none."""
    other = bytes(range(100, 140))
    found = load(folder, DELAYLOG_CLUSTER_SECRET=other.hex())
    assert found.secret.values == (other,)
    text = GOOD.replace('secret_file = "cluster.secret"', "")
    assert load(folder, text, DELAYLOG_CLUSTER_SECRET=other.hex()).secret.values == (other,)
    with pytest.raises(ClusterError, match="DELAYLOG_CLUSTER_SECRET: the secret is empty"):
        load(folder, DELAYLOG_CLUSTER_SECRET=" ")


def test_an_empty_variable_counts_as_absent(folder: Path) -> None:
    found = load(folder, DELAYLOG_CLUSTER_SECRET="", DELAYLOG_NODE="")
    assert found == load(folder)


def test_keys_differ_by_use_and_cluster(folder: Path) -> None:
    """A key of one use says nothing of another."""
    config = load(folder)
    other = load(folder, GOOD.replace("orders", "others"))
    keys = {key for c in (config, other) for use in KeyUse for key in c.keys(use)}
    assert len(keys) == 4
    assert not keys & {*config.secret.values}
    assert all(len(key) == 32 for key in keys)


def test_tls(folder: Path) -> None:
    """Files beside the cluster file; a pair that fits, and a key that nobody else reads."""
    for name in ("a", "b"):
        write_pair(folder, name, self_signed())
    text = GOOD + '[tls]\nca = "a.pem"\ncert = "a.pem"\nkey = "a.key"\n'
    config = load(folder, text)
    assert config.tls is not None
    assert config.tls.key == str(folder / "a.key")
    with pytest.raises(
        ClusterError, match=r"the key of tls\.key .* belongs to another certificate"
    ):
        load(folder, text.replace("a.key", "b.key"))
    with pytest.raises(ClusterError, match=r"tls\.ca .* must contain certificates in PEM"):
        load(folder, text.replace('ca = "a.pem"', 'ca = "a.key"'))
    (folder / "a.key").chmod(0o644)
    with pytest.raises(ClusterError, match=r"tls\.key .*: others than its owner may .*chmod 600"):
        load(folder, text)
