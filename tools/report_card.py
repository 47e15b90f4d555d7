"""Runs clients' tests against `cordwood serve` and a real Kafka, and writes docs/report-card.md.

usage: report_card.py [NAME...] [--render-only]

Two kinds of tests: a client's own suite, as its authors wrote it, and the checks of
tests/support/stock_clients, which are the same for every client. Each run leaves its results in
build/report-card/, one file a client and a broker; the page is made of the files that are there, so
that clients can be run one after the other, on different days. `--render-only` runs nothing.

What a client's tests need (Go, Node.js, a JDK, kcat) is installed as for `make compat`; a client
for which something is missing is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from cordwood.model.errors import CordwoodError

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "report-card.md"
RESULTS = ROOT / "build" / "report-card"
BROKERS = ("cordwood", "kafka")
KAFKA_VERSION = "4.3.0"
_REASON_MAX = 160
_ONE_BROKER = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    # Members of its tests have sessions of 3 s.
    "group.min.session.timeout.ms": "1000",
    "node.id": "0",
    "num.partitions": "4",
}
#: Those with TLS and SASL start a Kafka of their own.
_KAFKA_PYTHON_TESTS = ("test/integration", "--ignore=test/integration/test_ssl_integration.py")
#: Stands for the broker that runs already; the source distribution lacks the module.
_EXTERNAL_SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def stop(self):
        pass


SpawnedService = ExternalService
"""


class NoCaseError(Exception):
    """A run has no test of a client that it was for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test: `outcome` is `passed`, `failed` or `skipped`; `why` says why it did not pass."""

    name: str
    outcome: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The tests of one client at one broker."""

    client: str
    version: str
    broker: str
    is_own_suite: bool
    cases: tuple[Case, ...]

    def count(self, outcome: str) -> int:
        """The number of tests with an outcome."""
        return sum(case.outcome == outcome for case in self.cases)

    def to_json(self) -> str:
        """The file of the result."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The inverse of `to_json`."""
        value = json.loads(text)
        return cls(**value | {"cases": tuple(Case(**case) for case in value["cases"])})


# ---- what tests say


def junit_cases(document: str) -> list[Case]:
    """The tests of a JUnit file, as pytest writes it; an error is a failure."""
    found = []
    for case in ET.fromstring(document).iter("testcase"):  # written by our own pytest
        outcome, why = "passed", ""
        for child in case:
            if child.tag in {"failure", "error"}:
                outcome, why = "failed", child.get("message", "")
            elif child.tag == "skipped" and outcome == "passed":
                outcome, why = "skipped", child.get("message", "")
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"
        found.append(Case(name=name, outcome=outcome, why=_first_words(why)))
    return found


def go_cases(outcomes: Mapping[str, str], texts: Mapping[str, str]) -> list[Case]:
    """The tests of a Go program, without the parts of each."""
    words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    return [
        Case(
            name=name,
            outcome=words[outcome],
            why="" if outcome == "pass" else _last_words(texts.get(name, "")),
        )
        for name, outcome in sorted(outcomes.items())
        if "/" not in name
    ]


def split_by_client(
    cases: Iterable[Case], clients: Mapping[str, str]
) -> dict[tuple[str, str], list[Case]]:
    """Cases of one pytest run by client and broker: an id is `[BROKER-CLIENT-CHECK]`.

    Args:
        cases: of tests of one module.
        clients: the client by the beginning of the rest of an id; '' for all of the module.
    """
    found: dict[tuple[str, str], list[Case]] = {}
    longest_first = sorted(clients, key=len, reverse=True)
    for case in cases:
        _, _, parameters = case.name.rstrip("]").partition("[")
        broker, _, rest = parameters.partition("-")
        prefix = next((each for each in longest_first if rest.startswith(each)), None)
        if broker in BROKERS and prefix is not None:
            found.setdefault((clients[prefix], broker), []).append(case)
    return found


def _first_words(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _REASON_MAX else f"{line[: _REASON_MAX - 1]}…"


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("=== ", "--- "))]
    return _first_words(lines[-1]) if lines else ""


# ---- the page


INTRODUCTION = """\
# Report card

<!-- Written by `make report-card` (tools/report_card.py) from the results of test runs. -->

How clients' tests end at `cordwood serve`, and, where the same tests run there, at a real Kafka
4.3. `make report-card` runs them again, one client after the other; `.venv/bin/python
tools/report_card.py NAME` runs one. A client without a row has not been run since the page was
written last.
"""
OWN = """
## Suites of the clients themselves

As their authors wrote them, unchanged, at the version in the table.

"""
SAME = """
## The same checks for every client

`tests/support/stock_clients/contract.py` has them: codecs, headers, nulls, resets of offsets,
groups, retention, idempotence, administration. A client is not asked for what its library does
not have.

"""
NONE = "No result is here yet: run `make report-card`.\n"


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for heading, own in ((OWN, True), (SAME, False)):
        chosen = [each for each in results if each.is_own_suite is own]
        parts.append(heading)
        parts.append(_table(chosen) if chosen else NONE)
        parts += _reasons(chosen)
    return "".join(parts)


def _order(result: Result) -> tuple[str, int]:
    return result.client, BROKERS.index(result.broker)


def _table(results: Sequence[Result]) -> str:
    rows = [
        "| client | version | at | passed | failed | skipped |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in sorted(results, key=_order):
        counts = " | ".join(str(each.count(how)) for how in ("passed", "failed", "skipped"))
        where = "Cordwood" if each.broker == "cordwood" else "Kafka 4.3"
        rows.append(f"| {each.client} | {each.version} | {where} | {counts} |")
    return "\n".join(rows) + "\n"


def _reasons(results: Sequence[Result]) -> list[str]:
    """Why tests were skipped or failed, one line for each reason of a client."""
    lines: list[str] = []
    for each in sorted(results, key=_order):
        for outcome in ("failed", "skipped"):
            by_why: dict[str, list[str]] = {}
            for case in each.cases:
                if case.outcome == outcome:
                    by_why.setdefault(case.why, []).append(case.name)
            for why, names in sorted(by_why.items()):
                shown = ", ".join(f"`{name}`" for name in names[:3])
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                quoted = f"`{_quoted(why)}`" if why else "no reason given"
                lines.append(
                    f"- {each.client} at {each.broker}, {outcome}: {shown}{more}: {quoted}\n"
                )
    return ["\n", *lines] if lines else []


def _quoted(why: str) -> str:
    """A reason without backticks, and without its authors' notes to themselves in capitals."""
    return re.sub(r"\b[A-Z]{3,}: ", "", why.replace("`", "'"))


# ---- running


def _named_in(file: str, name: str) -> str:
    """The version that a go.mod or a package.json names."""
    text = (ROOT / "tests" / "compat" / "clients" / file).read_text(encoding="utf-8")
    if file.endswith(".json"):
        return str(json.loads(text)["dependencies"][name])
    words = text.split()
    return words[words.index(name) + 1].removeprefix("v")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """A module of tests/compat in which clients go through the same checks.

    `clients` are as of `split_by_client`, `versions` say which they are.
    """

    module: str
    clients: Mapping[str, str]
    versions: Mapping[str, Callable[[], str]]

    def run(self) -> list[Result]:
        """Runs the module's tests at both brokers."""
        with tempfile.TemporaryDirectory() as scratch:
            junit = Path(scratch) / "junit.xml"
            _pytest(
                junit, [f"tests/compat/{self.module}", "-m", "nightly or not nightly"], ROOT, {}
            )
            cases = junit_cases(junit.read_text(encoding="utf-8"))
        return self.results_of(cases)

    def results_of(self, cases: Sequence[Case]) -> list[Result]:
        """The results of a run.

        Raises:
            NoCaseError: a client has no test at one of the brokers, as after an error when tests
                are collected: the results of an earlier run would stay on the page.
        """
        split = split_by_client(cases, self.clients)
        for client in self.clients.values():
            for broker in BROKERS:
                if (client, broker) not in split:
                    why = next((case.why for case in cases if case.outcome == "failed"), "")
                    raise NoCaseError(f"{self.module} ran no test of {client} at {broker}: {why}")
        return [
            Result(
                client=client,
                version=self.versions[client](),
                broker=broker,
                is_own_suite=False,
                cases=tuple(found),
            )
            for (client, broker), found in split.items()
        ]


def _pytest(
    junit: Path, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> None:
    """Runs tests; those that fail are in the file, and no error."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, f"--junitxml={junit}", *arguments],
        cwd=cwd,
        env=os.environ | environment,
        check=False,
    )
    if not junit.exists():
        sys.exit(f"report card: pytest {' '.join(arguments)} wrote no result")


def _sarama(brokers: Sequence[str]) -> list[Result]:
    """Sarama's functional tests, at five brokers of each kind."""
    from support.stock_clients.sarama_suite import (  # noqa: PLC0415  # needs Go
        SUITE_SECONDS_MAX,
        SuiteCluster,
        run_suite,
        suite_programs,
    )

    programs, results = suite_programs(), []
    for broker in brokers:
        kind: Any = broker
        with (
            tempfile.TemporaryDirectory() as root,
            SuiteCluster(Path(root), kind, programs) as cluster,
        ):
            ran = run_suite(programs, cluster, programs.names, seconds_max=SUITE_SECONDS_MAX)
        results.append(
            Result(
                client="Sarama",
                version=_named_in("sarama-suite/go.mod", "github.com/IBM/sarama"),
                broker=broker,
                is_own_suite=True,
                cases=tuple(go_cases(ran.outcomes, ran.texts)),
            )
        )
    return results


def _kafka_python(brokers: Sequence[str]) -> list[Result]:
    """The integration tests in kafka-python's source distribution, at one broker of each kind."""
    number, results = version("kafka-python"), []
    with tempfile.TemporaryDirectory() as scratch:
        suite = _kafka_python_suite(Path(scratch), number)
        for broker in brokers:
            root = Path(scratch) / broker
            with _one_broker(broker, root) as address:
                junit = root / "junit.xml"
                environment = {
                    "KAFKA_URI": f"PLAINTEXT://{address}",
                    "KAFKA_VERSION": KAFKA_VERSION,
                    "KAFKA_ROOT": str(root),
                    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                }
                _pytest(
                    junit,
                    ["-o", "addopts=", "--assert=plain", *_KAFKA_PYTHON_TESTS],
                    suite,
                    environment,
                )
            results.append(
                Result(
                    client="kafka-python",
                    version=number,
                    broker=broker,
                    is_own_suite=True,
                    cases=tuple(junit_cases(junit.read_text(encoding="utf-8"))),
                )
            )
    return results


def _kafka_python_suite(scratch: Path, number: str) -> Path:
    """The unpacked source distribution, with the two files of its tests that it lacks."""
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-q"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(scratch)]
    subprocess.run([*command, f"kafka-python=={number}"], check=True)
    (archive,) = scratch.glob("kafka_python-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(scratch, filter="data")
    (suite,) = (path for path in scratch.glob("kafka_python-*") if path.is_dir())
    (suite / "test" / "__init__.py").touch()
    (suite / "test" / "service.py").write_text(_EXTERNAL_SERVICE)
    return suite


@contextmanager
def _one_broker(kind: str, root: Path) -> Iterator[str]:
    """The address of one broker, of Cordwood's or of Kafka's."""
    from support.kafka import RealKafka  # noqa: PLC0415  # needs a JVM
    from support.kafka_programs import kafka_jars  # noqa: PLC0415  # needs a JVM
    from support.ports import free_port  # noqa: PLC0415
    from support.served import ServedBroker  # noqa: PLC0415

    root.mkdir(parents=True)
    if kind == "cordwood":
        port = free_port()
        # A test reads it as a setting of server.properties, where the runner of Kafka has it, too.
        listeners = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        given = {**_ONE_BROKER, **listeners}
        with ServedBroker(root / "data", given, flags=(), port=port) as served:
            yield served.bootstrap_servers
        return
    kafka_jars()
    with RealKafka(root, properties=_ONE_BROKER) as kafka:
        kafka.start()
        yield kafka.bootstrap_servers


def _checks() -> dict[str, Checks]:
    go = {"franz-go": lambda: _named_in("go/go.mod", "github.com/twmb/franz-go")}
    return {
        "python": Checks(
            module="test_clients_python.py",
            clients={
                "confluent-kafka": "confluent-kafka (librdkafka)",
                "confluent-kafka-consumer-protocol": "confluent-kafka (librdkafka), KIP-848",
                "kafka-python": "kafka-python",
                "aiokafka": "aiokafka",
            },
            versions={
                "confluent-kafka (librdkafka)": lambda: version("confluent-kafka"),
                "confluent-kafka (librdkafka), KIP-848": lambda: version("confluent-kafka"),
                "kafka-python": lambda: version("kafka-python"),
                "aiokafka": lambda: version("aiokafka"),
            },
        ),
        "go": Checks(module="test_clients_go.py", clients={"": "franz-go"}, versions=go),
        "java": Checks(
            module="test_clients_java.py",
            clients={"": "Java client"},
            versions={"Java client": lambda: KAFKA_VERSION},
        ),
        "js": Checks(
            module="test_clients_js.py",
            clients={"": "KafkaJS"},
            versions={"KafkaJS": lambda: _named_in("js/package.json", "kafkajs")},
        ),
        "kcat": Checks(
            module="test_clients_kcat.py", clients={"": "kcat"}, versions={"kcat": _kcat_version}
        ),
    }


def _kcat_version() -> str:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+)", said)
    return "unknown" if found is None else found[1]


_OWN_SUITES: Mapping[str, Callable[[Sequence[str]], list[Result]]] = {
    "sarama-suite": _sarama,
    "kafka-python-suite": _kafka_python,
}


def _save(results: Iterable[Result], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for each in results:
        kind = "suite" if each.is_own_suite else "checks"
        name = re.sub(r"\W+", "-", f"{kind}-{each.client}-{each.broker}".lower()).strip("-")
        (directory / f"{name}.json").write_text(each.to_json(), encoding="utf-8")


def saved(directory: Path) -> list[Result]:
    """The results that runs have left in a directory."""
    return [
        Result.from_json(path.read_text(encoding="utf-8"))
        for path in sorted(directory.glob("*.json"))
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is named, or all, and writes the page."""
    checks = _checks()
    names = [*_OWN_SUITES, *checks]
    parser = argparse.ArgumentParser(description="Runs clients' tests, and writes the report card.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--broker", choices=BROKERS, help="own suites at this broker alone")
    parser.add_argument("--render-only", action="store_true", help="run nothing")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(names):
        parser.error(f"no client is named {', '.join(sorted(unknown))}: {', '.join(names)}")
    brokers = [given.broker] if given.broker else list(BROKERS)
    for name in [] if given.render_only else given.names or names:
        print(f"report card: {name}", flush=True)
        try:
            found = _OWN_SUITES[name](brokers) if name in _OWN_SUITES else checks[name].run()
        except (CordwoodError, OSError, subprocess.CalledProcessError) as error:
            print(f"report card: {name} is left out: {error}", file=sys.stderr)
            continue
        except NoCaseError as error:
            sys.exit(f"report card: {error}. {PAGE} stays as it is")
        _save(found, RESULTS)
    results = saved(RESULTS)
    if not results:
        sys.exit(f"report card: no results in {RESULTS}; {PAGE} stays as it is")
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
