from __future__ import annotations

import io
import json

import pytest

from cordwood.client.consumer import ConsumedRecord
from cordwood.format.record_batch import Header, Record
from cordwood.format.transaction_state import TRANSACTION_RECORDS
from cordwood.model.topic_partition import TopicPartition
from cordwood.surfaces.cli.tools.message_formats import SerializationError, message_formatter
from cordwood.surfaces.cli.tools.tool import Terminal

DEFAULT = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
SERIALIZATION = "org.apache.kafka.common.serialization"
RECORD = ConsumedRecord(
    TopicPartition("t", 3),
    Record(7, 1700, b"k", b"v", (Header("a", b"1"), Header("b", None))),
    "CreateTime",
)
EMPTY = ConsumedRecord(TopicPartition("t", 0), Record(0, -1, None, None), "CreateTime")


def shown(record: ConsumedRecord, name: str = DEFAULT, **properties: str) -> tuple[bytes, str]:
    err = io.BytesIO()
    terminal = Terminal(io.BytesIO(), io.BytesIO(), err)
    given = {key.replace("_", "."): value for key, value in properties.items()}
    formatter = message_formatter(name, given, terminal)
    assert formatter is not None
    return formatter(record), err.getvalue().decode()


def test_a_value_stands_alone_on_its_line() -> None:
    assert shown(RECORD)[0] == b"v\n"


def test_columns_come_in_kafkas_order() -> None:
    names = ("key", "headers", "epoch", "delivery", "offset", "partition", "timestamp")
    columns = {f"print_{name}": "true" for name in names}
    assert shown(RECORD, **columns)[0] == (
        b"CreateTime:1700\tPartition:3\tOffset:7\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\t"
        b"a:1,b:null\tk\tv\n"
    )
    assert shown(EMPTY, **columns)[0] == (
        b"NO_TIMESTAMP\tPartition:0\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\t"
        b"NO_HEADERS\tnull\tnull\n"
    )


def test_separators_and_the_word_for_null_can_be_chosen() -> None:
    chosen = {"print_key": "true", "key_separator": "=", "line_separator": ";"}
    assert shown(EMPTY, null_literal="-", **chosen)[0] == b"-=-;"


def test_without_any_column_nothing_is_shown() -> None:
    assert shown(RECORD, print_value="false")[0] == b""
    assert shown(RECORD, print_value="false", print_key="true")[0] == b"k\n"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("StringDeserializer", b"\xff", b"\xef\xbf\xbd"),
        ("IntegerDeserializer", b"\xff\xff\xff\xfe", b"-2"),
        ("LongDeserializer", b"\0\0\0\0\0\0\1\0", b"256"),
        ("ShortDeserializer", b"\0\1", b"1"),
        ("DoubleDeserializer", b"\x3f\xf8\0\0\0\0\0\0", b"1.5"),
    ],
)
def test_values_are_read_as_the_deserializer_says(name: str, data: bytes, text: bytes) -> None:
    record = ConsumedRecord(RECORD.partition, Record(0, 0, None, data), "CreateTime")
    assert shown(record, value_deserializer=f"{SERIALIZATION}.{name}")[0] == text + b"\n"


def test_bytes_that_the_deserializer_does_not_read_are_an_error() -> None:
    with pytest.raises(SerializationError) as caught:
        shown(RECORD, value_deserializer=f"{SERIALIZATION}.LongDeserializer")
    assert str(caught.value) == "Size of data received by LongDeserializer is not 8"


def test_a_deserializer_that_is_not_there_is_told_and_done_without() -> None:
    data, told = shown(RECORD, value_deserializer="x.Y")
    assert data == b"v\n"
    assert "ERROR Unable to instantiate a deserializer from x.Y" in told


def test_a_formatter_may_show_nothing_or_not_be_there() -> None:
    assert shown(RECORD, "org.apache.kafka.tools.consumer.NoOpMessageFormatter")[0] == b""
    terminal = Terminal(io.BytesIO(), io.BytesIO(), io.BytesIO())
    assert message_formatter("x.Y", {}, terminal) is None


def test_json_holds_text_as_it_is_and_other_bytes_in_base64() -> None:
    record = ConsumedRecord(RECORD.partition, Record(1, 2, b"\xff", "ä".encode()), "CreateTime")
    document = json.loads(shown(record, "json")[0])
    assert (document["key_base64"], document["value"], document["topic"]) == ("/w==", "ä", "t")


def test_the_state_of_a_transaction_is_shown_by_its_name() -> None:
    key = TRANSACTION_RECORDS.encode_key(0, {"transactionalId": "t"})
    value = TRANSACTION_RECORDS.encode_value(0, 1, {"transactionStatus": 1})
    partition = TopicPartition("__transaction_state", 0)
    record = ConsumedRecord(partition, Record(0, 0, key, value), "CreateTime")
    name = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
    found = json.loads(shown(record, name)[0])["value"]
    assert found["version"] == 1
    assert found["data"]["transactionStatus"] == "Ongoing"
