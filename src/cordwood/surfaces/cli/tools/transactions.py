"""`cordwood transactions`: what kafka-transactions does, and which ones hold back readers.

Source: org.apache.kafka.tools.TransactionsCommand, ToolsUtils.prettyPrintTable (4.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError, RefusedError, require
from cordwood.client.transactions import (
    AbortedTransaction,
    Producer,
    abort_in_partition,
    describe_producers,
    describe_transaction,
    terminate_transaction,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import DescribeProducersRequest, ListTransactionsRequest
from cordwood.queries.transactions import (
    DescribedProducer,
    DescribedTransaction,
    HangingTransaction,
    ListedTransaction,
    described_producer,
    described_transaction,
    hanging_transaction,
    listed_transactions,
)
from cordwood.surfaces.cli.tools.blocking import show_blocking
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    LONG_MAX,
    Option,
    OptionError,
    Options,
    Usage,
)
from cordwood.surfaces.cli.tools.pretty_table import show_rows
from cordwood.surfaces.cli.tools.tool import (
    RefusedFlagsError,
    Terminal,
    ToolError,
    client_settings,
    print_error,
    require_command,
    run_tool,
    split_command,
)

_REQUIRED = {
    "list": (),
    "describe": ("transactional-id",),
    "describe-producers": ("topic", "partition"),
    "abort": ("topic", "partition"),
    "find-hanging": (),
    "forceTerminateTransaction": ("transactionalId",),
    "blocking": (),
}
_SHORT = {"-v": "--version", "-h": "--help"}
_TIMEOUT_MINUTES = 15
_MS_PER_MINUTE = 60_000
_HINT = "Enable debug logging for additional detail."

USAGE = Usage(
    tool="transactions",
    summary=(
        "This tool is used to analyze the transactional state of producers in the cluster. "
        "Commands: list, describe, describe-producers, abort, find-hanging, "
        "forceTerminateTransaction; and blocking, which shows the open transactions that hold back "
        "readers of committed records."
    ),
    options=(
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("duration-filter", "With list: only those that run longer.", "MS"),
        Option("transactional-id-pattern", "With list: only ids that match.", "REGEX"),
        Option("transactional-id", "With describe: the id.", "ID"),
        Option("topic", "The topic; with blocking, all topics without it.", "NAME"),
        Option("partition", "With --topic: the partition.", "N"),
        Option("broker-id", "With describe-producers, find-hanging: the replica to ask.", "ID"),
        Option("start-offset", "With abort: the first offset of the transaction.", "OFFSET"),
        Option("producer-id", "With abort: the producer's id.", "ID"),
        Option("producer-epoch", "With abort: the producer's epoch.", "EPOCH"),
        Option("coordinator-epoch", "With abort: the epoch of the coordinator.", "EPOCH"),
        Option(
            "max-transaction-timeout",
            "With find-hanging: only transactions without a record for this long; 15 by default.",
            "MINUTES",
        ),
        Option(
            "transactionalId",
            "With forceTerminateTransaction: the id whose transaction is aborted, and whose "
            "producer is fenced.",
            "ID",
        ),
        *COMMON,
    ),
    examples="""\
  cordwood transactions --bootstrap-server localhost:9092 list
  cordwood transactions --bootstrap-server localhost:9092 describe-producers \\
    --topic orders --partition 0
  cordwood transactions --bootstrap-server localhost:9092 find-hanging --broker-id 1
  cordwood transactions --bootstrap-server localhost:9092 blocking
  cordwood transactions --bootstrap-server localhost:9092 abort \\
    --topic orders --partition 0 --start-offset 1200
  cordwood transactions --bootstrap-server localhost:9092 forceTerminateTransaction \\
    --transactionalId orders-7
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    given, command = split_command(arguments, USAGE, _SHORT)
    return run_tool(
        USAGE,
        given or [""],
        terminal,
        lambda options, terminal: _body(command, options, terminal),
        on_error=_explain,
    )


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    if isinstance(error, RefusedFlagsError | OptionError):
        terminal.error("usage: cordwood transactions --bootstrap-server host:port COMMAND ...")
        terminal.error(f"cordwood transactions: error: {error}")
    else:
        print_error(error, terminal)


def _body(command: str | None, options: Options, terminal: Terminal) -> int:
    command = require_command(command, _REQUIRED)
    for name in (*_REQUIRED[command], "bootstrap-server"):
        if not options.has(name):
            raise RefusedFlagsError(f"argument --{name} is required")
    client = client_settings(options)
    with ClusterClient(client, warn=terminal.warn) as cluster:
        if command == "list":
            _list(options, cluster, terminal)
        elif command == "describe":
            _describe(options, cluster, terminal)
        elif command == "describe-producers":
            _describe_producers(options, cluster, terminal)
        elif command == "abort":
            _abort(options, cluster)
        elif command == "forceTerminateTransaction":
            _force_terminate(options, cluster)
        elif command == "blocking":
            show_blocking(options, cluster, terminal)
        else:
            _find_hanging(options, cluster, terminal)
    return 0


def _list(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    longer_ms = options.number("duration-filter", bound=LONG_MAX)
    request = ListTransactionsRequest(
        duration_filter=-1 if longer_ms is None else longer_ms,
        transactional_id_pattern=options.value("transactional-id-pattern"),
    )
    try:
        found = listed_transactions(cluster, request)
    except ClientError as error:
        raise ToolError(f"Failed to list transactions: {error}. {_HINT}") from error
    show_rows(ListedTransaction, found, options, terminal)


def _describe(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    wanted = options.required("transactional-id")
    try:
        found = described_transaction(cluster, wanted, terminal.clock)
    except ClientError as error:
        raise ToolError(
            f"Failed to describe transaction state of transactional-id `{wanted}`: {error}. {_HINT}"
        ) from error
    show_rows(DescribedTransaction, [found], options, terminal)


def _describe_producers(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    tp = _partition(options)
    broker = options.number("broker-id")
    where = "leader" if broker is None else f"broker {broker}"
    try:
        producers = _producers(cluster, tp, broker)
    except ClientError as error:
        raise ToolError(
            f"Failed to describe producers for partition {tp} on {where}: {error}. {_HINT}"
        ) from error
    show_rows(
        DescribedProducer, [described_producer(each) for each in producers], options, terminal
    )


def _partition(options: Options) -> TopicPartition:
    partition = options.number("partition")
    assert partition is not None, "checked before"
    return TopicPartition(options.required("topic"), partition)


def _producers(
    cluster: ClusterClient, tp: TopicPartition, broker: int | None = None
) -> Sequence[Producer]:
    """The producers of a partition, as its leader or another replica knows them.

    Raises:
        ClientError: the broker cannot answer.
    """
    if broker is None:
        led = describe_producers(cluster, [tp])[tp]
        if isinstance(led, RefusedError):
            raise led
        return led
    Admin(cluster).describe_cluster()
    topic = DescribeProducersRequest.TopicRequest(name=tp.topic, partition_indexes=[tp.partition])
    answer = cluster.call(DescribeProducersRequest(topics=[topic]), node_id=broker)
    ((state,),) = (topic.partitions for topic in answer.topics)
    if state.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        # As Kafka's DescribeProducersHandler: another broker may have a replica, this one has none.
        text = f"Failed to describe active producers for partition {tp} on brokerId {broker}"
        raise RefusedError(state.error_code, text)
    require(state.error_code, state.error_message)
    return state.active_producers


def _abort(options: Options, cluster: ClusterClient) -> None:
    """Source: TransactionsCommand.AbortTransactionCommand, AbortTransactionHandler."""
    tp = _partition(options)
    aborted = _named_transaction(options)
    try:
        if aborted is None:
            aborted = _open_transaction(options, cluster, tp)
        abort_in_partition(cluster, tp, aborted)
    except ClientError as error:
        raise ToolError(
            f"Failed to abort transaction in partition {tp}: {error}. {_HINT}"
        ) from error


def _named_transaction(options: Options) -> AbortedTransaction | None:
    """The transaction that the flags describe; None if they give the first offset instead.

    Raises:
        ToolError: they do neither.
    """
    if options.has("start-offset"):
        return None
    numbers = [
        options.number(name, bound=LONG_MAX)
        for name in ("producer-id", "producer-epoch", "coordinator-epoch")
    ]
    given = [each for each in numbers if each is not None]
    if len(given) < len(numbers):
        raise ToolError(
            "The transaction to abort must be identified either with --start-offset (for brokers "
            "on 3.0 or above) or with --producer-id, --producer-epoch, and --coordinator-epoch "
            "(for older brokers)"
        )
    return AbortedTransaction(*given)


def _open_transaction(
    options: Options, cluster: ClusterClient, tp: TopicPartition
) -> AbortedTransaction:
    offset = options.number("start-offset", bound=LONG_MAX)
    for one in _producers(cluster, tp):
        if one.current_txn_start_offset == offset:
            return AbortedTransaction(
                one.producer_id, one.producer_epoch, max(one.coordinator_epoch, 0)
            )
    raise ToolError(
        f"Could not find any open transactions starting at offset {offset} on partition {tp}"
    )


def _force_terminate(options: Options, cluster: ClusterClient) -> None:
    transactional_id = options.required("transactionalId")
    try:
        terminate_transaction(cluster, transactional_id)
    except ClientError as error:
        raise ToolError(
            f"Failed to force terminate transactionalId `{transactional_id}`: {error}. {_HINT}"
        ) from error


def _find_hanging(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    """Lists old transactions that no coordinator has under way.

    Source: TransactionsCommand.FindHangingTransactionsCommand.
    """
    minutes = options.number("max-transaction-timeout")
    span_ms = (_TIMEOUT_MINUTES if minutes is None else minutes) * _MS_PER_MINUTE
    now_ms = terminal.clock.now_ms()
    broker = options.number("broker-id")
    try:
        candidates = [
            (tp, one)
            for tp in _searched(options, cluster)
            for one in _producers(cluster, tp, broker)
            if one.current_txn_start_offset >= 0 and now_ms - one.last_timestamp > span_ms
        ]
        under_way = _under_way(cluster) if candidates else {}
    except ClientError as error:
        raise ToolError(f"Failed to find hanging transactions: {error}. {_HINT}") from error
    found = [
        hanging_transaction(tp, one, now_ms)
        for tp, one in candidates
        if str(tp) not in under_way.get(one.producer_id, ())
    ]
    show_rows(HangingTransaction, found, options, terminal)


def _searched(options: Options, cluster: ClusterClient) -> list[TopicPartition]:
    """The partitions that the flags limit the search to.

    Raises:
        ToolError: they name neither a topic nor a broker.
    """
    topic, partition = options.value("topic"), options.number("partition")
    broker = options.number("broker-id")
    if topic is None and broker is None:
        raise ToolError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope "
            "of the search"
        )
    if topic is None and partition is not None:
        raise ToolError("The --partition argument requires --topic to be provided")
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    return [
        TopicPartition(each.name, one.partition)
        for each in Admin(cluster).topics(None if topic is None else [topic])
        for one in each.partitions
        if broker is None or broker in one.replicas
    ]


def _under_way(cluster: ClusterClient) -> dict[int, set[str]]:
    """The partitions of the transactions that coordinators have under way, by producer id."""
    found: dict[int, set[str]] = {}
    for node in Admin(cluster).describe_cluster().nodes:
        answer = cluster.call(ListTransactionsRequest(), node_id=node.id)
        require(answer.error_code)
        for state in answer.transaction_states:
            described = describe_transaction(cluster, state.transactional_id)
            found.setdefault(described.producer_id, set()).update(described.partitions)
    return found
