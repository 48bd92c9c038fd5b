"""The files of the image and of its three nodes, as far as they can be checked without an engine.

Method: they are read as text, YAML and TOML; every command in them is parsed by the command line's
own parser and its configuration checked as `serve` does; the health check runs for real.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
import yaml

from delaylog.broker.cli.parser import make_parser
from delaylog.broker.cluster.config import SECRET_VARIABLE, load_cluster
from delaylog.broker.host.config import Config, load_config
from delaylog.broker.host.settings import OPTIONS, ConfigError

ROOT: Final = Path(__file__).parents[2]
OPS: Final = ROOT / "ops"
DOCKERFILE: Final = (OPS / "Dockerfile").read_text()
COMPOSE_TEXT: Final = (OPS / "compose.yaml").read_text()
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
SECRET: Final = "0f1e2d3c4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeeff0"
VARIABLES: Final = {option.variable for option in OPTIONS} | {SECRET_VARIABLE}


def instructions() -> list[tuple[str, str]]:
    """(name, rest) of the Dockerfile, continued lines joined."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = []
    for line in joined.splitlines():
        if line:
            name, _, rest = line.partition(" ")
            found.append((name, " ".join(rest.split())))
    return found


def final_stage() -> dict[str, list[str]]:
    """The instructions behind the last FROM, by name."""
    found: dict[str, list[str]] = {}
    for name, rest in instructions():
        if name == "FROM":
            found.clear()
        found.setdefault(name, []).append(rest)
    return found


def image_environment() -> dict[str, str]:
    pairs = (word.partition("=") for line in final_stage()["ENV"] for word in shlex.split(line))
    return {name: value for name, _, value in pairs}


def configured(words: list[str], environ: Mapping[str, str]) -> Config:
    """What `serve` would run with. The parser ends the program at an option it does not know."""
    arguments = make_parser("serve").parse_args(words)
    assert arguments.verb == "serve"
    return load_config(vars(arguments), environ)


def commands() -> Iterator[list[str]]:
    """Each `delaylog VERB …` of the comments, in these files and inside a container."""
    for text in (DOCKERFILE, COMPOSE_TEXT):
        for line in re.findall(r"^# +((?:NEW_CLUSTER=\S+ )?docker .+)$", text, re.MULTILINE):
            words = shlex.split(line)
            if "build" in words:
                continue
            if "exec" in words:
                yield words[words.index("exec") + 3 :]
            elif "run" in words:
                last = len(words) - words[::-1].index("delaylog")
                yield words[last:]


def service_environment(service: dict[str, Any]) -> dict[str, str]:
    given = {**service["environment"], SECRET_VARIABLE: SECRET}
    return {**image_environment(), **given}


def service_command(service: dict[str, Any], new_cluster: str) -> list[str]:
    return shlex.split(service["command"].replace("${NEW_CLUSTER-}", new_cluster))


def test_its_pip_commands_are_those_of_the_documentation() -> None:
    page = (ROOT / "docs" / "SERVICE.md").read_text()
    documented = {line.strip() for line in page.splitlines() if line.startswith("    pip ")}
    used = [rest for name, rest in instructions() if name == "RUN" and rest.startswith("pip ")]
    assert len(used) == 2
    assert [line for line in used if line not in documented] == []


def test_the_extras_it_installs_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (named,) = re.findall(r"'\.\[(.+)\]'", DOCKERFILE)
    assert set(named.split(",")) == {"cluster", "redis", "arrow"} <= set(extras)


def test_the_build_gets_all_that_the_package_is_made_of() -> None:
    lines = (OPS / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    linked = {path.resolve().relative_to(ROOT).parts[0] for path in (ROOT / "src").glob("*/*")}
    files = {"pyproject.toml", "README.md", "LICENSE", "constraints.txt"}
    assert kept == linked | files | {"requirements-cluster.txt"}
    assert all((ROOT / name).exists() for name in kept)


def test_it_runs_as_a_user_of_its_own_over_a_volume() -> None:
    stage = final_stage()
    (user,) = stage["USER"]
    assert user != "root"
    assert any("useradd" in line and line.split(" && ")[0].endswith(user) for line in stage["RUN"])
    assert stage["VOLUME"] == [image_environment()["DELAYLOG_DATA_DIR"]]
    assert {name for name in image_environment() if name.startswith("DELAYLOG")} <= VARIABLES


def test_its_default_command_is_refused_until_the_risk_is_accepted() -> None:
    stage = final_stage()
    assert json.loads(stage["ENTRYPOINT"][0]) == ["delaylog"]
    words = json.loads(stage["CMD"][0])
    with pytest.raises(ConfigError, match="--insecure=no-tls"):
        configured(words, image_environment())
    accepted = configured([*words, "--insecure=no-auth,no-tls"], image_environment())
    assert (accepted.http_port, accepted.no_auth, accepted.no_tls) == (8711, True, True)


def test_every_command_of_the_comments_is_one() -> None:
    found = list(commands())
    assert len(found) == 4
    for words in found:
        make_parser().parse_args(words[1:] if words[0] == "delaylog" else words)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_asks_healthz(status: int, code: int) -> None:
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    _, _, command = final_stage()["HEALTHCHECK"][0].partition("CMD ")
    program, *words = json.loads(command)
    assert program == "python"
    listened = image_environment()["DELAYLOG_HTTP"].rpartition(":")[2]
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        words = [word.replace(f":{listened}/", f":{server.server_port}/") for word in words]
        done = subprocess.run([sys.executable, *words], capture_output=True, check=False)
        thread.join()
    assert (done.returncode, asked) == (code, ["/healthz"])


@pytest.mark.parametrize("new_cluster", ["", "--new-cluster"])
@pytest.mark.parametrize("name", SERVICES)
def test_each_node_is_configured(name: str, new_cluster: str) -> None:
    service = SERVICES[name]
    environ = service_environment(service)
    assert {key for key in environ if key.startswith("DELAYLOG")} <= VARIABLES
    config = configured(service_command(service, new_cluster), environ)
    assert config.new_cluster == bool(new_cluster)
    assert set(config.http_hosts) == set(SERVICES)
    mounts = dict(mount.split(":")[1::-1] for mount in service["volumes"])
    assert set(mounts) == {config.cluster, config.data_dir}
    assert mounts[config.data_dir] in COMPOSE["volumes"]
    assert config.cluster is not None
    cluster = load_cluster(
        str(OPS / mounts[config.cluster]), node=config.cluster_node, environ=environ
    )
    assert cluster.me.name == name
    assert len(cluster.members) == len(SERVICES)
    address = service["networks"]["nodes"]["ipv4_address"]
    assert cluster.me.peer == (address, 8712)
    assert cluster.me.http_url == f"http://{address}:{config.http_port}"
    (subnet,) = COMPOSE["networks"]["nodes"]["ipam"]["config"]
    assert ipaddress.ip_address(address) in ipaddress.ip_network(subnet["subnet"])


def test_nodes_share_nothing_and_are_published_on_this_machine_only() -> None:
    published = [port for service in SERVICES.values() for port in service["ports"]]
    assert len(set(published)) == len(SERVICES)
    assert all(port.startswith("127.0.0.1:") for port in published)
    volumes = [service["volumes"][1].split(":")[0] for service in SERVICES.values()]
    assert set(volumes) == set(COMPOSE["volumes"]) == set(SERVICES)


def test_the_secret_has_no_default() -> None:
    for service in SERVICES.values():
        assert service["environment"][SECRET_VARIABLE].startswith(f"${{{SECRET_VARIABLE}:?")
    assert "/ops/.env" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_build_of_compose_is_that_file() -> None:
    for service in SERVICES.values():
        context = (OPS / service["build"]["context"]).resolve()
        assert context == ROOT
        assert (context / service["build"]["dockerfile"]).is_file()
