"""The schemas of requests, responses and coordinators' records are those of Kafka's definitions."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cordwood.format.coordinator_record import CoordinatorSchemas
from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.messages.schema import Field, MessageSchema, fields_of, schemas
from cordwood.format.share_state import SHARE_STATE_RECORDS
from cordwood.format.transaction_state import TRANSACTION_RECORDS
from support.kafka_programs import KAFKA_4_3, KAFKA_4_4, kafka_jars

ROOT: Final = Path(__file__).resolve().parents[2]
TOOL: Final = runpy.run_path(str(ROOT / "tools" / "message_schemas.py"))
#: Fields that Kafka 4.4 has under another name than 4.3.
RENAMED: Final = {
    ("TxnOffsetCommitRequest", "generationId"): "generationIdOrMemberEpoch",
    ("StreamsGroupHeartbeatResponse", "acceptableRecoveryLag"): "acceptableRecoveryLagLegacy",
}


def text_of(version: str) -> str:
    text: str = TOOL["text_of"](kafka_jars(version) / f"kafka-clients-{version}.jar")
    return text


def layout(message: MessageSchema, version: int) -> tuple[object, ...]:
    """Returns each field that is read and written in a version, and the form of the message."""
    return (version in message.flexible, *_layout(message.fields, message.name, version))


def _layout(fields: Sequence[Field], message: str, version: int) -> list[tuple[Any, ...]]:
    return [
        (
            RENAMED.get((message, field.name), field.name),
            *(field.kind, field.is_array, field.is_nullable(version), field.tag, field.default),
            *_layout(field.fields, message, version),
        )
        for field in fields_of(tuple(fields), version)
    ]


@pytest.mark.usefixtures("kafka_4_4_jars")
def test_the_schemas_are_as_the_definitions_in_kafkas_jar_say() -> None:
    assert TOOL["SCHEMAS"].read_text() == text_of(KAFKA_4_4), "run python tools/message_schemas.py"


@pytest.mark.usefixtures("kafka_jars")
def test_every_version_of_kafka_4_3_is_as_it_was() -> None:
    own = schemas(TOOL["SCHEMAS"].read_text())
    before = schemas(text_of(KAFKA_4_3))
    assert len(before) > 150
    for name, message in before.items():
        assert message.key == own[name].key
        assert message.versions.lowest == own[name].versions.lowest
        for version in range(message.versions.lowest, message.versions.highest + 1):
            assert layout(own[name], version) == layout(message, version), (name, version)


@pytest.mark.usefixtures("kafka_4_4_jars")
@pytest.mark.parametrize(
    ("coordinator", "records"),
    [
        ("group", GROUP_RECORDS),
        ("share", SHARE_STATE_RECORDS),
        ("transaction", TRANSACTION_RECORDS),
    ],
)
def test_the_records_of_coordinators_are_those_of_kafka(
    coordinator: str, records: CoordinatorSchemas
) -> None:
    jar = kafka_jars(KAFKA_4_4) / f"kafka-{coordinator}-coordinator-{KAFKA_4_4}.jar"
    notation = TOOL["Notation"]()
    wanted = {
        name: schema
        for message in TOOL["definitions"](jar).values()
        for name, schema in schemas("\n".join(notation.message(message))).items()
    }
    own = {each.name: each for each in (*records.keys.values(), *records.values.values())}
    assert own.keys() == wanted.keys()
    for name, message in wanted.items():
        assert own[name].key == message.key
        assert own[name].versions == message.versions
        for version in range(message.versions.lowest, message.versions.highest + 1):
            assert layout(own[name], version) == layout(message, version), (name, version)
