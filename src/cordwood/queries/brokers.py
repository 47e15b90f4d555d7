"""The running brokers that are asked, identified, and how they are asked.

A broker is named by one of its log directories, by its Kafka address, or by the address of its HTTP
endpoint. The process that listens at that endpoint must report the expected identity: the node id,
the cluster id, and the log directory. A question that names a Kafka address is for all brokers of
the cluster; a change is made by one broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from cordwood.model.documents import from_document
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError
from cordwood.queries.http_client import (
    ANSWER_S,
    EndpointError,
    RefusedError,
    ask,
    parse_url,
    query_of,
)
from cordwood.queries.identity import NodeIdentity, OtherBroker, read_runtime_file
from cordwood.serving.addresses import in_url, is_wildcard
from cordwood.storage.filesystem import OS

if TYPE_CHECKING:  # the client is not loaded by commands that read files
    from cordwood.client.addressed import AddressedBroker as KafkaAddress

A = TypeVar("A")

_API_TIMEOUT_MS: Final = 10_000
_REFUSED_MS: Final = 1_500
_BAD_REQUEST: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Address of a running broker, as a user names it: one of the three is given."""

    log_dir: Path | None = None
    bootstrap_server: str | None = None
    url: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether a running broker is named at all."""
        return not (self.log_dir is None and self.bootstrap_server is None and self.url is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerQuestion(Generic[A]):
    """A question as a broker's HTTP endpoint takes it, and the type of the answer."""

    path: str
    answer: type[A]
    parameters: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    method: str = "GET"
    body: bytes = b""


class Asked(NamedTuple, Generic[A]):
    """The answer of one broker."""

    broker: NodeIdentity
    answer: A


class AddressedBroker:
    """A running broker, identified.

    `not_asked` are the other brokers of its cluster that are not addressed: their replicas are in
    no answer of this one.
    """

    def __init__(self, identity: NodeIdentity, *, url: str) -> None:
        self.url = url
        self.not_asked = tuple(identity.other_brokers or ())
        self.identity = replace(identity, other_brokers=None, not_asked=self.not_asked)

    def ask(self, question: BrokerQuestion[A], *, timeout_s: float = ANSWER_S) -> A:
        """The broker's answer, which may take `timeout_s`.

        Raises:
            ConfigError: the question is wrong; the reason is the broker's.
            EndpointError: it does not answer, or refuses.
        """
        try:
            path = query_of(question.path, **question.parameters)
            document = self.document(path, question.method, body=question.body, timeout_s=timeout_s)
        except RefusedError as error:
            if error.status == _BAD_REQUEST and question.method == "GET":
                raise ConfigError(error.reason) from error
            raise
        try:
            return from_document(question.answer, document)
        except CorruptError as error:
            raise EndpointError(f"{self.url}: {error}") from error

    def document(
        self, path: str, method: str = "GET", *, body: bytes = b"", timeout_s: float = ANSWER_S
    ) -> Any:
        """The JSON that it answers.

        Raises:
            EndpointError: it does not answer, or refuses.
        """
        return ask(self.url, path, method, body=body, timeout_s=timeout_s)

    @property
    def not_asked_line(self) -> str | None:
        """A line about the brokers that are not addressed; None if there are no others."""
        if not self.not_asked:
            return None
        others = [f"{each.node_id} ({each.address})" for each in self.not_asked]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers that a question is for; `not_asked` are others of the cluster, and why."""

    brokers: Sequence[AddressedBroker]
    not_asked: Sequence[OtherBroker] = ()

    def ask(self, question: BrokerQuestion[A]) -> list[Asked[A]]:
        """The answers of the brokers; one for which the question is wrong may have none.

        Raises:
            ConfigError: the question is wrong for each; the reason is the first one's.
            EndpointError: one does not answer, or refuses.
        """
        found: list[Asked[A]] = []
        wrong: list[ConfigError] = []
        for each in self.brokers:
            try:
                found.append(Asked(each.identity, each.ask(question)))
            except ConfigError as error:
                wrong.append(error)
        if not found:
            raise wrong[0]
        return found

    @property
    def not_asked_line(self) -> str | None:
        """A line about the brokers of the cluster that are not asked, and why; None if all are."""
        if not self.not_asked:
            return self.brokers[0].not_asked_line
        others = [f"broker {e.node_id} ({e.address}): {e.reason}" for e in self.not_asked]
        return f"Not asked, with their replicas: {'; '.join(others)}"


def find_brokers(place: Place, *, or_directory: bool = False) -> Brokers:
    """The brokers that a question is for: all of a cluster whose Kafka address is given, or one.

    With `or_directory`, the command could have been given LOG_DIR instead.

    Raises:
        ConfigError: not exactly one place is given, or `url` is not an HTTP address.
        CordwoodError: no broker runs there, or a different one answers.
    """
    servers = place.bootstrap_server
    if servers is None or place.log_dir is not None or place.url is not None:
        return Brokers(brokers=[find_broker(place, or_directory=or_directory)])
    addressed = _addressed(servers)
    found: list[AddressedBroker] = []
    not_asked: list[OtherBroker] = []
    errors: list[CordwoodError] = []
    for node in sorted(addressed.nodes, key=lambda each: each.id):
        address = f"{in_url(node.host)}:{node.port}"
        try:
            is_addressed = node.id == addressed.broker.id
            found.append(
                _identified(addressed, servers) if is_addressed else _by_kafka_address(address)
            )
        except CordwoodError as error:
            errors.append(error)
            not_asked.append(OtherBroker(node_id=node.id, address=address, reason=str(error)))
    if not found:
        raise errors[0]
    for broker in found:
        broker.not_asked = tuple(not_asked)
        broker.identity = replace(broker.identity, not_asked=broker.not_asked)
    return Brokers(brokers=found, not_asked=not_asked)


def find_broker(place: Place, *, or_directory: bool = False) -> AddressedBroker:
    """The broker that a place names.

    Raises:
        ConfigError: not exactly one place is given, or `url` is not an HTTP address.
        CordwoodError: no broker runs there, or a different one answers.
    """
    given = [e for e in (place.log_dir, place.bootstrap_server, place.url) if e is not None]
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
    if place.log_dir is not None:
        return broker_on(place.log_dir)
    if place.bootstrap_server is not None:
        return _by_kafka_address(place.bootstrap_server)
    assert place.url is not None, "one of them is given"
    try:
        parse_url(place.url)
    except ConfigError as error:
        raise ConfigError(f"--url {error}") from error
    return _broker_at(place.url)


def _broker_at(url: str, timeout_s: float = ANSWER_S) -> AddressedBroker:
    try:
        identity = from_document(NodeIdentity, ask(url, "/broker", timeout_s=timeout_s))
    except CorruptError as error:
        raise EndpointError(f"{url} is not the HTTP endpoint of a Cordwood broker") from error
    return AddressedBroker(identity, url=url)


def broker_on(log_dir: Path, *, timeout_s: float = ANSWER_S) -> AddressedBroker:
    """The broker that runs on a log directory; its answer may take `timeout_s`.

    Raises:
        CordwoodError: none does, or a different one answers.
        OSError: the directory cannot be read.
    """
    if not log_dir.is_dir():
        raise CordwoodError(f"--log-dir {log_dir}: there is no such directory")
    holder = OS.lock_holder(log_dir)
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
    is_expected = replace(found, not_asked=None) == expected
    if not is_expected and not (found.pid == holder and found.is_at(log_dir)):
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


def _by_kafka_address(servers: str) -> AddressedBroker:
    return _identified(_addressed(servers), servers)


def _addressed(servers: str) -> KafkaAddress:
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
            found = find_addressed(cluster, [HTTP_URL])
    except ClientError as error:
        raise CordwoodError(f"--bootstrap-server {servers}: {error}") from error
    if found is None:
        raise CordwoodError(
            f"what answers at {servers} is none of the brokers of its cluster: it is a controller, "
            "or a broker that is not registered yet"
        )
    return found


def _identified(addressed: KafkaAddress, servers: str) -> AddressedBroker:
    """The broker at a Kafka address, at its HTTP endpoint.

    Raises:
        CordwoodError: it is a Kafka, or serves no HTTP here.
    """
    from cordwood.configs.describe import HTTP_URL  # noqa: PLC0415

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
