"""Deployment of the project: the image file, Compose, Kubernetes, systemd."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cordwood.configs.server_properties import BrokerSettings
from cordwood.format.properties import parse_properties
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.serve_listening import listening_settings

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
BIN = Path(sys.executable).parent
MANIFESTS = sorted((PACKAGING / "kubernetes").glob("*.yaml"))
UNITS = sorted((PACKAGING / "systemd").iterdir())
#: The oldest version that has the label of a pod's number by default, and the newest known.
KUBERNETES = ("1.28", "")
#: What `systemd-analyze security` may find, in tenths of points: 0 is best, 100 has no limits.
EXPOSURE_MAX = 20


def ran(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tool(name: str) -> str:
    """A program of the environment of the tests."""
    if not (BIN / name).exists():
        pytest.skip(f"{name} is missing: run `make setup`")
    return str(BIN / name)


def documents() -> Iterator[Any]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def pods() -> Iterator[tuple[str, Any]]:
    """Each pod's specification, with the name of what makes it."""
    for document in documents():
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield document["metadata"]["name"], spec["template"]["spec"]


def containers() -> Iterator[tuple[str, Any, Any]]:
    for name, pod in pods():
        for each in (*pod.get("initContainers", []), *pod["containers"]):
            yield f"{name}/{each['name']}", pod, each


def words_of_commands() -> Iterator[tuple[str, list[str]]]:
    """Every command line of `cordwood` in the files, without the word itself."""
    for name, _, each in containers():
        if each.get("command", ["cordwood"])[0] == "cordwood":
            yield name, each["args"]
    for name, service in compose()["services"].items():
        if "cordwood" in service["image"].lower():
            yield f"compose/{name}", service["command"]
        if "healthcheck" in service:
            yield f"compose/{name}/health", service["healthcheck"]["test"][2:]
    for path in UNITS:
        for line in re.findall(r"(?m)^ExecStart=\S+/cordwood (.*)", path.read_text()):
            yield path.name, shlex.split(line)
    for words in re.findall(r"(?m)^ *CMD (\[.*\])", image_file()):
        listed = json.loads(words)
        yield "image", listed[1:] if listed[0] == "cordwood" else listed


def compose() -> Any:
    return yaml.safe_load((PACKAGING / "compose" / "compose.yaml").read_text(encoding="utf-8"))


def image_file() -> str:
    return (PACKAGING / "container" / "Containerfile").read_text(encoding="utf-8")


# ---- by the judges of each format


def test_the_image_file_is_sound_to_hadolint() -> None:
    ran(tool("hadolint"), str(PACKAGING / "container" / "Containerfile"))


def test_the_compose_file_is_one_by_its_schema() -> None:
    path = str(PACKAGING / "compose" / "compose.yaml")
    ran(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path)


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_are_what_kubernetes_takes(version: str) -> None:
    chosen = ["--kubernetes-version", version] if version else []
    paths = [str(path) for path in MANIFESTS]
    ran(tool("kubernetes-validate"), "--strict", *chosen, *paths)


def _units_for_here(directory: Path) -> list[str]:
    """The units, with a program that is installed here."""
    written = []
    for path in UNITS:
        text = path.read_text(encoding="utf-8").replace("/opt/cordwood/bin", str(BIN))
        (directory / path.name).write_text(text, encoding="utf-8")
        written.append(str(directory / path.name))
    return written


def _systemd() -> str:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    return "systemd-analyze"


def test_the_units_are_sound_to_systemd(tmp_path: Path) -> None:
    done = subprocess.run(
        [_systemd(), "verify", "--man=no", *_units_for_here(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["cordwood.service", "cordwood-clean.service"])
def test_a_service_can_do_little_beside_its_work(tmp_path: Path, name: str) -> None:
    _units_for_here(tmp_path)
    limit = f"--threshold={EXPOSURE_MAX}"
    ran(_systemd(), "security", "--offline=true", "--no-pager", limit, str(tmp_path / name))


# ---- what no schema says


@pytest.mark.parametrize(("name", "pod", "container"), list(containers()))
def test_a_container_has_no_rights_and_a_root_that_it_cannot_write(
    name: str, pod: Any, container: Any
) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True, name
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


def test_every_volume_that_is_mounted_is_there() -> None:
    claims = {
        document["metadata"]["name"]: {
            each["metadata"]["name"] for each in document["spec"]["volumeClaimTemplates"]
        }
        for document in documents()
        if document["kind"] == "StatefulSet"
    }
    for name, pod, container in containers():
        known = {each["name"] for each in pod["volumes"]} | claims.get(name.split("/")[0], set())
        assert {each["name"] for each in container["volumeMounts"]} <= known, name


def test_every_service_selects_pods_that_are_there() -> None:
    labels = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in documents()
        if document["kind"] == "StatefulSet"
    ]
    services = {
        document["metadata"]["name"]: document["spec"]["selector"]
        for document in documents()
        if document["kind"] == "Service"
    }
    assert len(services) == 3
    assert all(selector in labels for selector in services.values()), services
    for document in documents():
        if document["kind"] == "StatefulSet":
            assert document["spec"]["serviceName"] in services
            assert document["spec"]["selector"]["matchLabels"] in labels


def test_prometheus_finds_every_node_and_its_port() -> None:
    ports: dict[str, set[int]] = {}
    for document in documents():
        if document["kind"] == "Service":
            found = {each["port"] for each in document["spec"]["ports"]}
            ports[document["metadata"]["name"]] = found
    for document in documents():
        if document["kind"] == "StatefulSet":
            template = document["spec"]["template"]
            assert template["metadata"]["annotations"] == {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9464",
            }, document["metadata"]["name"]
            assert 9464 in ports[document["spec"]["serviceName"]]


def test_a_broker_that_is_deployed_can_compact() -> None:
    brokers = [
        each
        for name, _, each in containers()
        if each["args"][0] == "serve" and "controller" not in name
    ]
    assert len(brokers) == 2
    for each in brokers:
        assert each["image"].endswith(":spark")
        assert each["resources"]["limits"]["memory"] == "4Gi"
    assert compose()["services"]["broker"]["image"].endswith(":spark}")


WHEELS = ("cp311-cp311-manylinux_2_28_x86_64", "cp399-cp399-manylinux_2_28_x86_64", "py3-none-any")


@pytest.mark.parametrize("given", [WHEELS, WHEELS[1:]])
def test_the_image_takes_of_a_release_the_wheel_for_its_python(
    tmp_path: Path, given: tuple[str, ...]
) -> None:
    for tag in given:
        _write_wheel(tmp_path / "dist", tag)
    (command,) = re.findall(r"/build/bin/(pip download .*?)\s*\\?\n    &&", image_file(), re.S)
    words = [
        word.replace("/dist", str(tmp_path / "dist")).replace("/wheel", str(tmp_path / "wheel"))
        for word in command.replace("\\\n", " ").split()
    ]
    platform = ["--python-version=3.11", "--platform=manylinux_2_28_x86_64", "--only-binary=:all:"]
    ran(sys.executable, "-m", *words, *platform)
    (chosen,) = (tmp_path / "wheel").iterdir()
    assert (
        chosen.name == f"cordwood-9.9.9-{'py3-none-any' if given[0] != WHEELS[0] else given[0]}.whl"
    )


def _write_wheel(directory: Path, tag: str) -> None:
    """The least that pip takes for a wheel."""
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / f"cordwood-9.9.9-{tag}.whl", "w") as wheel:
        facts = "cordwood-9.9.9.dist-info"
        wheel.writestr(
            f"{facts}/METADATA", "Metadata-Version: 2.1\nName: cordwood\nVersion: 9.9.9\n"
        )
        wheel.writestr(f"{facts}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        wheel.writestr(f"{facts}/RECORD", "")


COMMANDS = list(words_of_commands())


def test_the_files_run_cordwood() -> None:
    names = {name for name, _ in COMMANDS}
    assert {"cordwood.service", "cordwood-clean.service", "image", "compose/broker"} <= names
    assert {"cordwood/broker", "cordwood-broker/broker", "cordwood-clean/clean"} <= names


@pytest.mark.parametrize(("name", "words"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_cordwood_takes_the_options_that_the_files_give_it(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    result = CliRunner().invoke(app, [words[0], "--help"])
    assert result.exit_code == 0, name
    listed = result.output + capsys.readouterr().out
    for word in words[1:]:
        option = word.partition("=")[0]
        if option.startswith("--"):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", listed), f"{name}: {option}"


def _of_cluster(name: str) -> dict[str, str]:
    (settings,) = [each for each in documents() if each["kind"] == "ConfigMap"]
    return dict(parse_properties(settings["data"][f"{name}.properties"], name=name))


def test_the_nodes_of_a_cluster_have_settings_that_are_taken() -> None:
    controller = BrokerSettings(_of_cluster("controller"))
    (place,) = controller.advertised_controller_listeners
    assert place.host == "cordwood-controller-0.cordwood-controller"
    advertised = listening_settings(None, None, "cordwood-broker-0.cordwood-brokers.ns.svc")
    broker = BrokerSettings(_of_cluster("broker") | {"node.id": "0"} | advertised)
    (listener,) = broker.advertised_listeners
    assert listener.host == "cordwood-broker-0.cordwood-brokers.ns.svc"
    assert broker.controller_listeners == ()
    assert not broker.is_controller


def test_the_broker_of_compose_has_an_address_for_each_side() -> None:
    words = compose()["services"]["broker"]["command"]
    prefix = "--override="
    given = dict(
        word.removeprefix(prefix).split("=", 1) for word in words if word.startswith(prefix)
    )
    settings = BrokerSettings(given)
    assert {(each.name, each.host, each.port) for each in settings.advertised_listeners} == {
        ("PLAINTEXT", "broker", 29092),
        ("HOST", "localhost", 9092),
    }


def test_what_compose_publishes_is_for_this_machine_alone() -> None:
    ports = [port for each in compose()["services"].values() for port in each.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_prometheus_scrapes_where_the_broker_serves_http() -> None:
    path = PACKAGING / "compose" / "prometheus.yml"
    (job,) = yaml.safe_load(path.read_text(encoding="utf-8"))["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["broker:9464"]}]
    assert "--http-bind=0.0.0.0" in compose()["services"]["broker"]["command"]
