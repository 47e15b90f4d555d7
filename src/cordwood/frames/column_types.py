"""The columns of the table of records, and their types in Spark's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Those that Spark's Kafka source has come first, with its names and types.
COLUMN_TYPES: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "leaderEpoch": "int",
    "producerId": "bigint",
    "producerEpoch": "smallint",
    "sequence": "int",
    "isTransactional": "boolean",
    "isControl": "boolean",
}
