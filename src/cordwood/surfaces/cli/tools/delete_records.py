"""`cordwood delete-records`: what kafka-delete-records does.

Source: org.apache.kafka.tools.DeleteRecordsCommand (4.4.0).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError
from cordwood.client.offsets import Offsets
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.records import DeletedRecords
from cordwood.surfaces.cli.tools.java_order import java_order, partition_hash
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    Option,
    Options,
    Usage,
)
from cordwood.surfaces.cli.tools.tool import (
    Terminal,
    ToolError,
    client_settings,
    print_error,
    read_file,
    run_tool,
)

USAGE = Usage(
    tool="delete-records",
    summary=(
        "This tool helps to delete records of the given partitions down to the specified offset."
    ),
    options=(
        BOOTSTRAP,
        Option("offset-json-file", "Required: offsets by partition, see below.", "FILE"),
        COMMAND_CONFIG,
        *COMMON,
    ),
    notes="""\
The file names, for each partition, the offset before which all records are deleted; -1 is the end:
  {"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}], "version": 1}""",
    examples="""\
  cordwood delete-records --bootstrap-server localhost:9092 --offset-json-file offsets.json
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    return run_tool(USAGE, arguments, terminal, _body, on_error=print_error)


def _body(options: Options, terminal: Terminal) -> int:
    options.require("bootstrap-server", "offset-json-file")
    client = client_settings(options)
    text = read_file(options.required("offset-json-file")).decode("utf-8", "replace")
    offsets = parse_offsets(text)
    is_json = options.has("json")
    with ClusterClient(client, warn=terminal.warn) as cluster:
        if not is_json:
            terminal.line("Executing records delete operation")
        found = Offsets(cluster).delete_records(offsets)
    _log_errors(found, client.name, terminal)
    if is_json:
        terminal.document([_answer(tp, result) for tp, result in found.items()])
        return 0
    terminal.line("Records delete operation completed:")
    ordered = offsets
    for _ in range(2):
        ordered = dict.fromkeys(java_order(ordered, partition_hash), 0)
    for tp in ordered:
        result = found[tp]
        if isinstance(result, RefusedError):
            terminal.line(f"partition: {tp}\terror: {result.described}")
        else:
            terminal.line(f"partition: {tp}\tlow_watermark: {result}")
    return 0


def _log_errors(
    found: Mapping[TopicPartition, int | RefusedError], client: str, terminal: Terminal
) -> None:
    for tp, result in found.items():
        if isinstance(result, RefusedError) and result.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            terminal.log(
                "ERROR",
                f"[{client}] DeleteRecords request for topic partition {tp} failed due to an "
                f"unexpected error {result.code_name}",
                "org.apache.kafka.clients.admin.internals.DeleteRecordsHandler",
            )


def _answer(tp: TopicPartition, result: int | RefusedError) -> DeletedRecords:
    if isinstance(result, RefusedError):
        return DeletedRecords(topic=tp.topic, partition=tp.partition, error=str(result))
    return DeletedRecords(topic=tp.topic, partition=tp.partition, low_watermark=result)


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """The offset of each partition that the JSON text names.

    Raises:
        ToolError: it is no such text, or names a partition twice.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ToolError("The input string is not a valid JSON") from error
    if not isinstance(document, dict):
        raise ToolError(f"Expected JSON object, received {json.dumps(document)}")
    version = _field(document, "version", int) if "version" in document else 1
    if version != 1:
        raise ToolError(f"Not supported version field value {version}")
    if "partitions" not in document:
        raise ToolError("Missing partitions field")
    if not isinstance(document["partitions"], list):
        raise ToolError(f"Expected JSON array, received {json.dumps(document['partitions'])}")
    found: dict[TopicPartition, int] = {}
    twice: dict[TopicPartition, None] = {}
    for entry in document["partitions"]:
        tp = TopicPartition(_field(entry, "topic", str), _field(entry, "partition", int))
        if tp in found:
            twice[tp] = None
        found[tp] = _field(entry, "offset", int)
    if twice:
        names = ",".join(str(tp) for tp in java_order(twice, partition_hash))
        raise ToolError(f"Offset json file contains duplicate topic partitions: {names}")
    return found


def _field(entry: Any, name: str, kind: type[Any]) -> Any:
    if not isinstance(entry, dict):
        raise ToolError(f"Expected JSON object, received {json.dumps(entry)}")
    if name not in entry:
        raise ToolError(f"No such field exists: `{name}`")
    value = entry[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "Integer" if name in {"partition", "version"} else "Long"
        wanted = "String" if kind is str else wanted
        shown = json.dumps(value, separators=(",", ":"))
        raise ToolError(f"Expected `{wanted}` value, received {shown}")
    return value
