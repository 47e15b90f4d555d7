"""Finds the running broker that a command addresses, and checks its identity.

A broker is named by one of its log directories, by its Kafka address, or by the address of its HTTP
endpoint. The process that listens at that endpoint must report the expected identity: the node id,
the cluster id, and the log directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from cordwood.model.errors import (
    ConfigError,
    CordwoodError,
    CorruptError,
    DirectoryInUseError,
    MissingExtraError,
    NotALogDirError,
)
from cordwood.queries.http_client import ANSWER_S, EndpointError, ask, parse_url
from cordwood.queries.identity import NodeIdentity, other_brokers, read_runtime_file
from cordwood.serving.addresses import in_url, is_wildcard
from cordwood.storage.filesystem import DirectoryLock
from cordwood.surfaces.cli.failure import fail
from cordwood.surfaces.cli.log_options import LogFormat, LogLevel, LogOptions, logging_to
from cordwood.surfaces.cli.screen import Screen

_API_TIMEOUT_MS = 10_000
_REFUSED_MS = 1_500

LogDirOption = Annotated[
    Path | None,
    typer.Option("--log-dir", metavar="DIR", help="A log directory of the broker."),
]
BootstrapServerOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", metavar="HOST:PORT", help="The Kafka address of the broker."
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The broker's HTTP endpoint, as its log shows it."),
]


_FAILED, _USAGE, _IN_USE = 1, 2, 3
_IN_USE_ADVICE = (
    "Nothing was changed: stop that process first; a Cordwood broker that runs is named by "
    "--log-dir"
)


@contextmanager
def broker_command(
    context: typer.Context,
    name: str,
    *,
    log_level: LogLevel | None,
    log_format: LogFormat,
    log_file: Path | None,
    audit_log: Path | None = None,
) -> Iterator[None]:
    """Runs the body of `cordwood NAME` with logging on stderr or to the file.

    Ends the command with exit code 2 for wrong options, 3 if a directory is in use, and 1 for any
    other error.
    """
    try:
        log = LogOptions(level=log_level, format=log_format, file=log_file, audit=audit_log)
        context.with_resource(logging_to(context.with_resource(Screen()).line, log))
        yield
    except (ConfigError, MissingExtraError, NotALogDirError) as error:
        fail(name, error, _USAGE)
    except DirectoryInUseError as error:
        fail(name, f"{error} {_IN_USE_ADVICE}", _IN_USE)
    except (CordwoodError, OSError) as error:
        fail(name, error, _FAILED)


class AddressedBroker:
    """A running broker, identified.

    `not_asked` are the other brokers of its cluster, by id, with their addresses: their replicas
    are in no answer of this one.
    """

    def __init__(
        self, url: str, identity: NodeIdentity, not_asked: Mapping[int, str] | None = None
    ) -> None:
        self.url = url
        self.identity = identity
        self.not_asked = dict(not_asked or {})

    def ask(self, path: str, method: str = "GET", *, body: bytes = b"") -> Any:
        """The JSON that it answers.

        Raises:
            EndpointError: it does not answer, or refuses.
        """
        return ask(self.url, path, method, body=body)

    def to_json(self) -> dict[str, Any]:
        """The broker as JSON documents have it."""
        return self.identity.to_json() | {
            "not_asked": [
                {"node_id": node_id, "address": address}
                for node_id, address in self.not_asked.items()
            ]
        }

    @property
    def not_asked_line(self) -> str | None:
        """Which brokers are not addressed; None if there are no others."""
        if not self.not_asked:
            return None
        others = [f"{node_id} ({address})" for node_id, address in self.not_asked.items()]
        return (
            f"Only broker {self.identity.node_id} is addressed. Not addressed, with their "
            f"replicas: broker {', '.join(others)}; address each of them, too"
        )

    @property
    def line(self) -> str:
        """A description of the broker for users."""
        who = self.identity
        return (
            f"{who.role.capitalize()}: {who.node_id} of cluster {who.cluster_id}, "
            f"process {who.pid}, {', '.join(who.log_dirs)}, {self.url}"
        )


def find_broker(
    *,
    log_dir: Path | None,
    bootstrap_server: str | None,
    url: str | None,
    or_directory: bool = False,
) -> AddressedBroker:
    """The broker selected by the options; other brokers of its cluster are named on stderr.

    With `or_directory`, the command could have been given LOG_DIR instead.

    Raises:
        ConfigError: not exactly one option is given, or `url` is not an HTTP address.
        CordwoodError: no broker runs there, or a different one answers.
    """
    given = [each for each in (log_dir, bootstrap_server, url) if each is not None]
    if len(given) != 1:
        options = (
            "--log-dir DIR (a log directory of the broker), --bootstrap-server HOST:PORT or "
            "--url URL"
        )
        if or_directory and not given:
            raise ConfigError(
                f"Give LOG_DIR, such as /var/lib/kafka/data, or a running broker: {options}"
            )
        raise ConfigError(f"which broker? Give one of {options}")
    if log_dir is not None:
        found = broker_on(log_dir)
    elif bootstrap_server is not None:
        found = _by_kafka_address(bootstrap_server)
    else:
        assert url is not None, "one of them is given"
        try:
            parse_url(url)
        except ConfigError as error:
            raise ConfigError(f"--url {error}") from error
        found = _broker_at(url)
    if found.not_asked_line is not None:
        typer.echo(found.not_asked_line, err=True)
    return found


def _broker_at(url: str, timeout_s: float = ANSWER_S) -> AddressedBroker:
    try:
        answer = ask(url, "/broker", timeout_s=timeout_s)
        others = other_brokers(answer)
        return AddressedBroker(url, NodeIdentity.from_json(answer), others)
    except CorruptError as error:
        raise EndpointError(f"{url} is not the HTTP endpoint of a Cordwood broker") from error


def broker_on(log_dir: Path, *, timeout_s: float = ANSWER_S) -> AddressedBroker:
    """The broker that runs on a log directory; its answer may take `timeout_s`.

    Raises:
        CordwoodError: none does, or a different one answers.
        OSError: the directory cannot be read.
    """
    if not log_dir.is_dir():
        raise CordwoodError(f"--log-dir {log_dir}: there is no such directory")
    holder = DirectoryLock.holder(log_dir)
    if holder is None:
        raise CordwoodError(f"no broker runs on {log_dir}: its .lock is free")
    expected = read_runtime_file(log_dir)
    if expected is None:
        raise CordwoodError(
            f"{log_dir} is in use by process {holder}, which is not a `cordwood serve` that has "
            "started: it is starting still, it is a Kafka or a `cordwood clean`, or its disk was "
            "full (then name it by --bootstrap-server or --url)"
        )
    if expected.http_url is None:
        raise CordwoodError(
            f"{expected} serves no HTTP, as it was started with --http-port -1: start it without"
        )
    try:
        broker = _broker_at(expected.http_url, timeout_s)
    except EndpointError as error:
        raise CordwoodError(
            f"{log_dir} is in use by process {holder}, but {expected}, which was the last to say "
            f"where it answers, does not answer: {error}. Name the broker by --bootstrap-server or "
            "--url"
        ) from error
    found = broker.identity
    # A broker that was killed leaves its file, and the next one cannot replace it on a full disk.
    if found != expected and not (found.pid == holder and _is_one_of(log_dir, found.log_dirs)):
        raise CordwoodError(
            f"{log_dir} is in use by process {holder}. The last broker to say where it answers was "
            f"{expected}; at its address {expected.http_url} another one answers, {found}. Name "
            "the broker by --bootstrap-server or --url"
        )
    return broker


def _reached(url: str, host: str) -> str:
    """The URL, at the host where the broker was reached if it listens at every address."""
    parts = urlsplit(url)
    if not is_wildcard(parts.hostname or ""):
        return url
    return f"{parts.scheme}://{in_url(host)}:{parts.port}"


def _is_one_of(log_dir: Path, log_dirs: Iterable[str]) -> bool:
    return log_dir.resolve() in {Path(each).resolve() for each in log_dirs}


def _by_kafka_address(servers: str) -> AddressedBroker:
    # The client is not loaded by commands that read files.
    from cordwood.client.addressed import find_addressed  # noqa: PLC0415
    from cordwood.client.cluster_client import ClusterClient  # noqa: PLC0415
    from cordwood.client.errors import ClientError  # noqa: PLC0415
    from cordwood.client.settings import ClientSettings  # noqa: PLC0415
    from cordwood.configs.describe import HTTP_URL  # noqa: PLC0415

    settings = ClientSettings(
        bootstrap_servers=servers,
        api_timeout_ms=_API_TIMEOUT_MS,
        request_timeout_ms=_API_TIMEOUT_MS,
        refused_ms=_REFUSED_MS,
    )
    try:
        with ClusterClient(settings, warn=lambda _: None) as cluster:
            addressed = find_addressed(cluster, [HTTP_URL])
    except ClientError as error:
        raise CordwoodError(f"--bootstrap-server {servers}: {error}") from error
    if addressed is None:
        raise CordwoodError(
            f"what answers at {servers} is none of the brokers of its cluster: it is a controller, "
            "or a broker that is not registered yet"
        )
    node, cluster_id = addressed.broker.id, addressed.cluster_id
    where = f"broker {node} of cluster {cluster_id} at {servers}"
    if HTTP_URL not in addressed.configs:
        raise CordwoodError(f"{where} is not a `cordwood serve`, but a Kafka")
    url = addressed.configs[HTTP_URL]
    if not url:
        raise CordwoodError(
            f"{where} serves no HTTP, as it was started with --http-port -1: start it without"
        )
    url = _reached(url, addressed.broker.host)
    try:
        broker = _broker_at(url)
    except EndpointError as error:
        raise CordwoodError(
            f"{where} has its HTTP endpoint at {url}, of its own machine; run this command there: "
            f"{error}"
        ) from error
    found = broker.identity
    if (found.node_id, found.cluster_id) != (node, cluster_id):
        raise CordwoodError(
            f"at {url} answers {found}, not broker {node} of cluster {cluster_id} as at {servers}: "
            "run this command on the machine of that broker"
        )
    return broker
