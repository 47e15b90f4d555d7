"""The functional tests of Sarama, at a cluster of five brokers of Kafka's or Cordwood's.

Role: `suite_programs` builds Sarama's tests and the proxy that they cut connections with.
`SuiteCluster` is the cluster that Sarama's `docker-compose.yml` describes: each broker in a rack of
its own, replicated internal topics, and clients come through the proxy. `run_suite` runs the tests
and says what became of each.

Some of the tests stop a broker, start it again, or read its log by `docker compose`. They find a
`docker` on their PATH that asks the cluster to do so.

`python -m support.stock_clients.sarama_suite kafka DIR`, or `cordwood`, shows the outcomes.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from cordwood.model.errors import CordwoodError
from support.built_programs import fetch, need, run
from support.cluster_broker import ClusterBroker
from support.cluster_controller import ClusterController
from support.kafka import poll_until
from support.kafka_cluster import ControllerOfCluster, KafkaBroker, KafkaController
from support.ports import SARAMA_PORTS, free_port
from support.stock_clients.program import built_client

BrokerKind = Literal["cordwood", "kafka"]
Outcome = Literal["pass", "fail", "skip"]

#: The tests take it from there which of them apply.
KAFKA_VERSION: Final = "4.3.0"
BROKERS: Final = range(1, 6)
#: As Sarama's `Makefile` gives the tests.
SUITE_SECONDS_MAX: Final = 900

_MODULES: Final = ("github.com/IBM/sarama", "github.com/Shopify/toxiproxy/v2")
_FUNCTIONAL: Final = "//go:build functional"
_START_SECONDS_MAX: Final = 120.0
#: Beyond the time that the tests have by themselves.
_END_SECONDS_MAX: Final = 60.0
_TAIL_LINES: Final = 40
_DOCKER_SECONDS: Final = 0.2
_OUT_OF_SEQUENCE: Final = "kafka_server_brokertopicmetrics_invalidoffsetorsequencerecords_total"
#: There is one for each partition of `__consumer_offsets`.
_GROUPS: Final = [f"group-{n:02}" for n in range(100)]
#: That of Kafka's `server.properties` where Sarama's `docker-compose.yml` has none. What happens
#: when a broker has gone takes as long as it does there.
_PROPERTIES: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "9000",
    "default.replication.factor": "2",
    "delete.topic.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "num.partitions": "1",
    "offsets.topic.num.partitions": "50",
    "offsets.topic.replication.factor": "2",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.replication.factor": "2",
}
_DOCKER: Final = """#!{python} -IS
import socket, sys
with socket.socket(socket.AF_UNIX) as cluster:
    cluster.connect({path!r})
    cluster.sendall("\\0".join(sys.argv[1:]).encode() + b"\\n")
    code, _, said = b"".join(iter(lambda: cluster.recv(65536), b"")).partition(b"\\n")
sys.stdout.buffer.write(said)
sys.exit(int(code))
"""


class SuiteError(CordwoodError):
    """The tests could not be run: a port is taken, or they did not come to an end."""


@dataclass(frozen=True, slots=True)
class SuitePrograms:
    """Programs that `suite_programs` has built.

    Attributes:
        tests: the program with Sarama's tests.
        proxy: Toxiproxy.
        names: of the functional tests, which the program has beside unit tests.
    """

    tests: Path
    proxy: Path
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """Results of the tests.

    Attributes:
        outcomes: of each test, and of each of its parts, which is named `test/part`.
        texts: what each has printed.
        said: what the program printed for none of them, as a panic.
    """

    outcomes: Mapping[str, Outcome]
    texts: Mapping[str, str]
    said: str

    def named(self, outcome: Outcome) -> list[str]:
        """The tests and parts with this outcome."""
        return sorted(name for name, each in self.outcomes.items() if each == outcome)

    def tail(self, names: Sequence[str]) -> str:
        """The last lines of the texts of these."""
        return "\n\n".join(
            "\n".join([f"=== {name}", *self.texts[name].splitlines()[-_TAIL_LINES:]])
            for name in names
        )


def suite_programs() -> SuitePrograms:
    """Needs Go, and for the first build the Go module proxy."""

    def build(source: Path, target: Path) -> None:
        need("go", "install Go")
        fetch(["go", "mod", "download", *_MODULES], source)
        for name, module, command in (
            ("tests", _MODULES[0], ["test", "-tags", "functional", "-c"]),
            ("toxiproxy", _MODULES[1], ["build"]),
        ):
            listed = run(["go", "list", "-m", "-f", "{{.Dir}}", module], source)
            with tempfile.TemporaryDirectory() as scratch:
                # A program is built in its own module, with the versions that it names.
                copy = Path(scratch) / "module"
                shutil.copytree(listed.strip(), copy, copy_function=shutil.copyfile)
                for path in (copy, *copy.rglob("*")):
                    if path.is_dir():
                        path.chmod(0o755)
                fetch(["go", "mod", "download"], copy)
                package = "." if name == "tests" else "./cmd/server"
                run(["go", *command, "-o", str(target / name), package], copy)
                if name == "tests":
                    (target / "names.json").write_text(json.dumps(_functional(copy)))

    home = built_client("sarama-suite", build)
    names = json.loads((home / "names.json").read_text())
    return SuitePrograms(home / "tests", home / "toxiproxy", tuple(names))


def _functional(module: Path) -> list[str]:
    """The names of the functional tests."""
    return sorted(
        line.removeprefix("func ").partition("(")[0]
        for path in module.glob("*_test.go")
        if (text := path.read_text(encoding="utf-8")).startswith(_FUNCTIONAL)
        for line in text.splitlines()
        if line.startswith("func Test") and "(t *testing.T)" in line
    )


class _SuiteKafkaBroker(KafkaBroker):
    """One of Kafka's with a second listener, which clients reach through the proxy."""

    def __init__(self, root: Path, controller: ControllerOfCluster, node_id: int) -> None:
        super().__init__(root, controller, node_id, properties=_properties_of(node_id))
        self.behind = free_port()

    def roles(self) -> dict[str, str]:
        """The settings of a broker's roles, with the suite's listeners."""
        return {**super().roles(), **_listeners(self.node_id, self.port, self.behind)}

    def told(self) -> str:
        """The whole log for the tests, as nothing that they look for may be there."""
        return self.server_log


class _SuiteBroker(ClusterBroker):
    """`_SuiteKafkaBroker` of Cordwood's."""

    def __init__(self, root: Path, controller: ControllerOfCluster, node_id: int) -> None:
        super().__init__(root, controller, node_id, properties=_properties_of(node_id))
        self.behind = free_port()
        self._properties |= _listeners(node_id, self.port, self.behind)

    def told(self) -> str:
        """The log for the tests; batches out of sequence are counted, and in no log."""
        url = f"{self.url}/metrics"
        with urlopen(url, timeout=_START_SECONDS_MAX) as answer:  # noqa: S310  # loopback
            metrics = answer.read().decode()
        refused = re.search(rf"^{_OUT_OF_SEQUENCE} (\S+)$", metrics, re.MULTILINE)
        if refused is None:
            raise SuiteError(f"no {_OUT_OF_SEQUENCE} in the metrics")
        return self.log + "OutOfOrderSequenceException\n" * int(float(refused[1]))


def _properties_of(node_id: int) -> dict[str, str]:
    return {**_PROPERTIES, "broker.rack": str(node_id)}


def _listeners(node_id: int, port: int, behind: int) -> dict[str, str]:
    """Other brokers, and this test, come directly: what cuts a client off divides no cluster."""
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{behind}",
        "advertised.listeners": (
            f"PLAINTEXT://127.0.0.1:{port},PROXIED://localhost:{_proxied(node_id)}"
        ),
    }


def _proxied(node_id: int) -> int:
    return SARAMA_PORTS[node_id - 1]


class SuiteCluster:
    """A controller, five brokers and the proxy; a context manager that leaves nothing running."""

    def __init__(self, root: Path, kind: BrokerKind, programs: SuitePrograms) -> None:
        """Nothing runs yet.

        Args:
            root: where all files are.
            kind: whose the nodes are.
            programs: of `suite_programs`.
        """
        self.root = root
        session = {"broker.session.timeout.ms": _PROPERTIES["broker.session.timeout.ms"]}
        self.controller: KafkaController | ClusterController
        if kind == "kafka":
            self.controller = KafkaController(root / "controller", properties=session)
        else:
            self.controller = ClusterController(root / "controller", properties=session, flags=())
        node: Any = _SuiteKafkaBroker if kind == "kafka" else _SuiteBroker
        self.brokers: dict[int, _SuiteKafkaBroker | _SuiteBroker] = {
            node_id: node(root / str(node_id), self.controller, node_id) for node_id in BROKERS
        }
        self._programs = programs
        self._proxy_port = free_port()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._take_ports()
            self._stack.enter_context(self.controller)
            self.controller.launch()
            poll_until(
                self.controller.serving, timeout_s=_START_SECONDS_MAX, what="a controller starts"
            )
            self._stack.callback(self._end_brokers)
            for broker in self.brokers.values():
                broker.start()
            self._start_proxy()
            self._listen_to_docker()
            poll_until(
                self._has_coordinators, timeout_s=_START_SECONDS_MAX, what="coordinators of groups"
            )
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the tests find the cluster."""
        return {
            "TOXIPROXY_ADDR": f"http://127.0.0.1:{self._proxy_port}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
        }

    def stop(self, node_id: int) -> None:
        """Stops a broker, if it runs."""
        if self.brokers[node_id].is_running:
            self.brokers[node_id].stop()

    def start(self, node_id: int) -> None:
        """Starts a broker, unless it runs."""
        if not self.brokers[node_id].is_running:
            self.brokers[node_id].start()

    def _take_ports(self) -> None:
        """One cluster at a time: the tests have their ports from no one."""
        lock = self._stack.enter_context(
            (Path(tempfile.gettempdir()) / f"cordwood-sarama-{os.getuid()}").open("w")
        )
        fcntl.flock(lock, fcntl.LOCK_EX)

    def _has_coordinators(self) -> bool:
        """Whether each group has one: some tests give up if the first group of all waits for it."""
        servers = ",".join(each.bootstrap_servers for each in self.brokers.values())
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for described in admin.describe_consumer_groups(_GROUPS).values():
            try:
                described.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    return False
        return True

    def _end_brokers(self) -> None:
        try:
            for node_id in self.brokers:
                self.stop(node_id)
        finally:
            for broker in self.brokers.values():
                if broker.is_running:
                    broker.kill()

    def _start_proxy(self) -> None:
        log = self._stack.enter_context((self.root / "toxiproxy.log").open("wb"))
        proxy = subprocess.Popen(
            [self._programs.proxy, "-host", "127.0.0.1", "-port", str(self._proxy_port)],
            stdout=log,
            stderr=log,
        )
        self._stack.callback(proxy.wait)
        self._stack.callback(proxy.kill)
        poll_until(
            lambda: _connects(self._proxy_port), timeout_s=_START_SECONDS_MAX, what="a proxy starts"
        )
        for node_id, broker in self.brokers.items():
            told = {
                "name": f"kafka{node_id}",
                "listen": f"127.0.0.1:{_proxied(node_id)}",
                "upstream": f"127.0.0.1:{broker.behind}",
                "enabled": True,
            }
            request = Request(
                f"http://127.0.0.1:{self._proxy_port}/proxies", data=json.dumps(told).encode()
            )
            try:
                urlopen(request, timeout=_START_SECONDS_MAX).close()  # noqa: S310  # loopback
            except HTTPError as error:
                said = error.read().decode(errors="replace").strip()
                raise SuiteError(f"no proxy at port {_proxied(node_id)}: {said}") from error

    def _listen_to_docker(self) -> None:
        path = self.root / "docker.socket"
        programs = self.root / "bin"
        programs.mkdir()
        (programs / "docker").write_text(_DOCKER.format(python=sys.executable, path=str(path)))
        (programs / "docker").chmod(0o755)
        cluster = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                asked = self.rfile.readline().decode().strip().split("\0")
                code, said = cluster._docker(asked)
                self.wfile.write(f"{code}\n{said}".encode())

        self._docker_server = socketserver.UnixStreamServer(str(path), Handler)
        self._docker_server.timeout = _DOCKER_SECONDS
        self._stack.callback(self._docker_server.server_close)

    def do_as_docker(self) -> None:
        """Waits a moment for a `docker` of the tests, and does what it asks for.

        The caller's thread starts the broker then: a Kafka ends with the thread that has.
        """
        self._docker_server.handle_request()

    def _docker(self, asked: Sequence[str]) -> tuple[int, str]:
        """The exit code of the `docker` of the tests, and what it prints."""
        nodes = {f"kafka-{node_id}": node_id for node_id in BROKERS}
        try:
            match asked:
                case ["compose", "stop", name] if name in nodes:
                    self.stop(nodes[name])
                case ["compose", "start", name] if name in nodes:
                    self.start(nodes[name])
                case ["compose", "logs", "--since", _, name] if name in nodes:
                    return 0, self.brokers[nodes[name]].told()
                case _:
                    return 1, f"unknown: docker {' '.join(asked)}"
        except CordwoodError as error:
            return 1, str(error)
        return 0, ""


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def run_suite(
    programs: SuitePrograms, cluster: SuiteCluster, names: Sequence[str], *, seconds_max: int
) -> SuiteRun:
    """Runs the tests with these names; those that are not done after `seconds_max` fail.

    Raises:
        SuiteError: the program does not end.
    """
    output = cluster.root / "tests.log"
    command: list[str | Path] = [
        programs.tests,
        "-test.v=test2json",
        f"-test.timeout={seconds_max}s",
        f"-test.run=^({'|'.join(names)})$",
    ]
    with output.open("wb") as log:
        tests = subprocess.Popen(
            command,
            cwd=cluster.root,
            env=os.environ | cluster.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + seconds_max + _END_SECONDS_MAX
            while tests.poll() is None:
                cluster.do_as_docker()
                if time.monotonic() > deadline:
                    raise SuiteError(f"Sarama's tests do not end after {seconds_max} s")
        finally:
            tests.kill()
            tests.wait()
    with output.open("rb") as log:
        events = subprocess.run(
            ["go", "tool", "test2json"],
            stdin=log,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS_MAX,
            check=True,
        ).stdout
    return outcomes_of(map(json.loads, events.splitlines()))


def outcomes_of(events: Iterable[Mapping[str, Any]]) -> SuiteRun:
    """The outcomes in the events of `go tool test2json`; a test that has not ended has failed."""
    outcomes: dict[str, Outcome] = {}
    texts: dict[str, list[str]] = {}
    for event in events:
        name = event.get("Test", "")
        match event["Action"]:
            case "output":
                texts.setdefault(name, []).append(event["Output"])
            case "run":
                # Until it ends: it does not if the program panics, or is out of time.
                outcomes[name] = "fail"
            case "pass" | "fail" | "skip" as outcome if name:
                outcomes[name] = outcome
    joined = {name: "".join(lines) for name, lines in texts.items()}
    return SuiteRun(outcomes, joined, joined.pop("", ""))


def _show(kind: BrokerKind, root: Path) -> None:
    programs = suite_programs()
    with SuiteCluster(root, kind, programs) as cluster:
        ran = run_suite(programs, cluster, programs.names, seconds_max=SUITE_SECONDS_MAX)
    for outcome in ("pass", "skip", "fail"):
        names = ran.named(outcome)
        sys.stdout.write(
            "\n".join([f"{outcome}: {len(names)}", *(f"  {each}" for each in names), ""])
        )
    sys.stdout.write(f"{ran.tail(ran.named('fail'))}\n{ran.said}")


if __name__ == "__main__":
    _show("kafka" if sys.argv[1] == "kafka" else "cordwood", Path(sys.argv[2]))
