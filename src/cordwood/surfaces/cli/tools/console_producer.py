"""`cordwood console-producer`: what kafka-console-producer does.

Source: org.apache.kafka.tools.ConsoleProducer (4.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError
from cordwood.client.producer import Producer, ProducerRecord, ProducerSettings
from cordwood.format.compression import Codec
from cordwood.model.errors import CordwoodError
from cordwood.queries.records import ProducedRecords
from cordwood.surfaces.cli.tools.lines import LineReader, LineSource
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMON,
    INT_MAX,
    LONG_MAX,
    OPTIONAL,
    Option,
    Options,
    Usage,
    UsageError,
    java_integer,
    parse_pairs,
)
from cordwood.surfaces.cli.tools.tool import (
    ConfigValueError,
    Terminal,
    ToolError,
    client_settings,
    described,
    read_properties,
    require_addresses,
    run_tool,
)

_READER = "org.apache.kafka.tools.LineMessageReader"
_CALLBACK = "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback"
_READER_PROPERTIES = """\
Reader properties:
  parse.key=false              the line starts with the key
  key.separator=\\t             separates key and value
  parse.headers=false          the line starts with headers, before the key
  headers.delimiter=\\t         separates the headers from the rest
  headers.separator=,          separates headers; a regular expression
  headers.key.separator=:      separates a header's key and value
  ignore.error=false           use a line without separators as the value
  null.marker=                 keys, values and header values with this text are null"""

_DELIVERY_TIMEOUT_MS = 120_000

USAGE = Usage(
    tool="console-producer",
    summary="This tool helps to read data from standard input and publish it to Kafka.",
    options=(
        Option("topic", "Required: the topic to send to.", "NAME"),
        BOOTSTRAP,
        Option("sync", "Wait for each record's answer; the first error ends the run."),
        Option(
            "compression-codec",
            "none, gzip, snappy, lz4 or zstd; gzip if none is given.",
            "CODEC",
            OPTIONAL,
        ),
        Option("batch-size", "Bytes of a batch.", "BYTES", default="16384"),
        Option("message-send-max-retries", "How often to try again.", "N", default="3"),
        Option("retry-backoff-ms", "How long to wait before that.", "MS", default="100"),
        Option("timeout", "How long a record may wait for its batch.", "MS", default="1000"),
        Option("request-required-acks", "all, -1, 0 or 1.", "ACKS", default="-1"),
        Option("request-timeout-ms", "How long an answer may take.", "MS", default="1500"),
        Option("metadata-expiry-ms", "Accepted, without effect.", "MS", default="300000"),
        Option("max-block-ms", "How long to wait for the topic.", "MS", default="60000"),
        Option("max-memory-bytes", "The largest record there may be.", "BYTES", default="33554432"),
        Option("max-partition-memory-bytes", "Deprecated: --batch-size.", "BYTES", default="16384"),
        Option(
            "line-reader",
            "The class that reads lines; only this one is supported.",
            "CLASS",
            default=_READER,
        ),
        Option("socket-buffer-size", "Accepted, without effect.", "BYTES", default="102400"),
        Option("property", "Deprecated: --reader-property.", "KEY=VALUE"),
        Option("reader-property", "How lines are read, see below.", "KEY=VALUE"),
        Option("reader-config", "A properties file with reader properties.", "FILE"),
        Option("producer-property", "Deprecated: --command-property.", "KEY=VALUE"),
        Option("command-property", "A setting of the producer.", "KEY=VALUE"),
        Option("producer.config", "Deprecated: --command-config.", "FILE"),
        Option("command-config", "A properties file with settings of the producer.", "FILE"),
        *COMMON,
    ),
    notes=_READER_PROPERTIES,
    examples="""\
  cordwood console-producer --bootstrap-server localhost:9092 --topic orders
  cordwood console-producer --bootstrap-server localhost:9092 --topic orders \\
    --reader-property parse.key=true --reader-property key.separator=: < orders.txt
""",
)

_DEPRECATED = (
    ("producer-property", "command-property"),
    ("producer.config", "command-config"),
    ("property", "reader-property"),
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    return run_tool(
        USAGE, arguments, terminal, _body, on_error=_explain, option_errors_show_usage=True
    )


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    terminal.error(described(error))


def _body(options: Options, terminal: Terminal) -> int:
    _check(options, terminal)
    reader = LineReader(_reader_properties(options))
    if options.value("line-reader") != _READER:
        raise ToolError(f"java.lang.ClassNotFoundException: {options.value('line-reader')}")
    properties = producer_properties(options)
    settings = producer_settings(properties)
    client = client_settings(
        options, client_id="console-producer", kind="Producer", extra=properties
    )
    is_sync = options.has("sync")
    lost = _Lost(terminal, is_sync=is_sync)
    with ClusterClient(client, warn=terminal.warn) as cluster:
        producer = Producer(cluster, settings, lost.add)
        lines = LineSource(terminal)
        topic = options.required("topic")
        sent = 0
        try:
            while (line := lines.next_line(producer.due_s())) is not None:
                if line:
                    key, value, headers = reader.read(line[0])
                    producer.send(ProducerRecord(topic, key, value, headers))
                    sent += 1
                if is_sync:
                    producer.flush()
                producer.flush_due()
        finally:
            producer.flush()
    if options.has("json"):
        terminal.document(ProducedRecords(delivered=sent - lost.count, lost=lost.count))
    return lost.exit_code()


def _check(options: Options, terminal: Terminal) -> None:
    options.require("topic")
    for old, new in (
        ("producer.config", "command-config"),
        ("producer-property", "command-property"),
        ("property", "reader-property"),
    ):
        if options.has(old) and options.has(new):
            raise UsageError(f"Options --{new} and --{old} cannot be specified together.")
    for old, new in _DEPRECATED:
        if options.has(old):
            terminal.line(
                f"Warning: --{old} is deprecated and will be removed in a future version. Use "
                f"--{new} instead."
            )
    if options.has("max-partition-memory-bytes"):
        terminal.line(
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache "
            "Kafka 5.0. Use --batch-size instead."
        )
    require_addresses(options)


def _reader_properties(options: Options) -> dict[str, str]:
    file = options.value("reader-config")
    properties = {} if file is None else read_properties(file)
    given = options.values("reader-property") or options.values("property")
    return properties | parse_pairs(given)


_MERGED = (
    ("linger.ms", "timeout", LONG_MAX),
    ("acks", "request-required-acks", None),
    ("request.timeout.ms", "request-timeout-ms", INT_MAX),
    ("retries", "message-send-max-retries", INT_MAX),
    ("retry.backoff.ms", "retry-backoff-ms", LONG_MAX),
    ("send.buffer.bytes", "socket-buffer-size", INT_MAX),
    ("buffer.memory", "max-memory-bytes", LONG_MAX),
    ("batch.size", "batch-size", INT_MAX),
    ("batch.size", "max-partition-memory-bytes", INT_MAX),
    ("metadata.max.age.ms", "metadata-expiry-ms", LONG_MAX),
    ("max.block.ms", "max-block-ms", LONG_MAX),
)


def producer_properties(options: Options) -> dict[str, str]:
    """The producer's settings, from files, properties and flags.

    Source: ConsoleProducerOptions.producerProps, CommandLineUtils.maybeMergeOptions.
    """
    file = options.value("command-config") or options.value("producer.config")
    properties = {} if file is None else read_properties(file)
    properties |= parse_pairs(
        options.values("command-property") or options.values("producer-property")
    )
    properties["compression.type"] = "none"
    if options.has("compression-codec"):
        properties["compression.type"] = options.value("compression-codec") or "gzip"
    for key, flag, bound in _MERGED:
        if options.has(flag) or key not in properties:
            value = options.value(flag) if bound is None else options.number(flag, bound=bound)
            properties[key] = str(value)
    return properties


def producer_settings(properties: Mapping[str, str]) -> ProducerSettings:
    """The producer's settings.

    Raises:
        ToolError: a value is invalid; the text is that of Kafka's ConfigDef.
    """
    _require_one_of(properties, "compression.type", [codec.config_name for codec in Codec])
    _require_one_of(properties, "acks", ["all", "-1", "0", "1"])

    def number(name: str, default: int) -> int:
        text = properties.get(name)
        if text is None:
            return default
        found = java_integer(text.strip(), bound=LONG_MAX)
        if found is None:
            raise ConfigValueError(
                f"Invalid value {text} for configuration {name}: Not a number of type LONG"
            )
        return found

    return ProducerSettings(
        acks=properties["acks"],
        codec=Codec[properties["compression.type"].upper()],
        batch_bytes=number("batch.size", 16_384),
        linger_ms=number("linger.ms", 1000),
        retries=number("retries", 3),
        retry_backoff_ms=number("retry.backoff.ms", 100),
        retry_backoff_max_ms=number("retry.backoff.max.ms", 1_000),
        delivery_timeout_ms=_delivery_timeout_ms(
            number("delivery.timeout.ms", _DELIVERY_TIMEOUT_MS),
            number("linger.ms", 1000) + number("request.timeout.ms", 1500),
            is_given="delivery.timeout.ms" in properties,
        ),
        request_timeout_ms=number("request.timeout.ms", 1500),
        max_block_ms=number("max.block.ms", 60_000),
        max_request_bytes=number("max.request.size", 1_048_576),
        buffer_memory_bytes=number("buffer.memory", 33_554_432),
        idempotent=properties.get("enable.idempotence", "true").lower() != "false",
    )


def _delivery_timeout_ms(given_ms: int, least_ms: int, *, is_given: bool) -> int:
    """Source: KafkaProducer.configureDeliveryTimeout."""
    if given_ms >= least_ms:
        return given_ms
    if is_given:
        raise ConfigValueError(
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
        )
    return least_ms


def _require_one_of(properties: Mapping[str, str], name: str, values: list[str]) -> None:
    if properties[name] not in values:
        raise ConfigValueError(
            f"Invalid value {properties[name]} for configuration {name}: String "
            f"must be one of: {', '.join(values)}"
        )


@dataclass(slots=True)
class _Lost:
    """The records that were not delivered, each reported with its error."""

    terminal: Terminal
    _: KW_ONLY
    is_sync: bool
    count: int = 0

    def add(self, record: ProducerRecord, error: ClientError) -> None:
        """Reports a record.

        Raises:
            ToolError: with `is_sync`, the first ends the run.
        """
        if self.is_sync:
            raise ToolError(f"java.util.concurrent.ExecutionException: {error.described}")
        self.count += 1
        key = "null" if record.key is None else f"{len(record.key)} bytes"
        value = "null" if record.value is None else f"{len(record.value)} bytes"
        self.terminal.log(
            "ERROR",
            f"Error when sending message to topic {record.topic} with key: {key}, value: {value} "
            "with error:",
            _CALLBACK,
        )
        self.terminal.error(error.described)

    def exit_code(self) -> int:
        """0 if all were delivered, else 1.

        Differs: Kafka's tool ends with 0 then.
        """
        return 1 if self.count else 0
