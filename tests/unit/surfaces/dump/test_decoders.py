from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.record import Record
from cordwood.format.share_state import SHARE_STATE_RECORDS
from cordwood.format.transaction_state import TRANSACTION_RECORDS
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.surfaces.dump.decoders import (
    STRING_DECODER,
    class_decoder,
    decode_cluster_metadata,
    decode_offsets,
    decode_remote_log_metadata,
    decode_share_group_state,
    decode_transaction_log,
)

API = "org.apache.kafka.tools.api."
KEY = GROUP_RECORDS.encode_key(2, {"group": "g"})


def test_classes_of_kafka() -> None:
    record = Record(0, 0, struct.pack(">i", -7), struct.pack(">q", 1 << 40))
    decode = class_decoder(API + "IntegerDecoder", API + "LongDecoder")
    assert decode(record) == ("-7", str(1 << 40))
    assert class_decoder(STRING_DECODER, API + "DefaultDecoder")(record)[1] == "0000010000000000"
    assert decode(Record(0, 0, None, None)) == (None, None)
    with pytest.raises(CorruptError):
        decode(Record(0, 0, b"abc", None))
    with pytest.raises(ConfigError, match="Failed to load"):
        class_decoder(STRING_DECODER, "my.Decoder")


def test_members_of_consumer_groups_are_opened() -> None:
    member = {"memberId": "m", "subscription": bytes.fromhex("000000000000ffffffff")}
    for protocol, subscription in (
        ("consumer", '{"topics":[],"userData":null}'),
        ("connect", '"AAAAAAAA/////w=="'),
    ):
        value = GROUP_RECORDS.encode_value(2, 3, {"protocolType": protocol, "members": [member]})
        _, text = decode_offsets(Record(0, 0, KEY, value))
        assert text is not None
        assert f'"subscription":{subscription}' in text
        assert '"assignment":""' in text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (b"\0", b"", "Error at offset 4, skipping. Could not read version from key's buffer."),
        (KEY, b"", "Error at offset 4, skipping. Could not read version from value's buffer."),
        (
            KEY,
            b"\0\x09",
            "Error at offset 4, skipping. Found an unknown record version 9 for 2 type",
        ),
        (
            b"\0\2\0\5g",
            b"",
            (
                "Error at offset 4, skipping. Could not read record with version 2 from key's "
                "buffer due to: Error reading byte array of 5 byte(s): only 1 byte(s) available."
            ),
        ),
        (
            KEY,
            b"\0\3",
            (
                "Error at offset 4, skipping. Could not read record with version 3 from value's "
                "buffer due to: null."
            ),
        ),
        (b"\0\x12", b"", "Unknown record type 18 at offset 4, skipping."),
    ],
)
def test_records_that_cannot_be_read_say_why(key: bytes, value: bytes, text: str) -> None:
    assert decode_offsets(Record(4, 0, key, value)) == (text, None)


def test_a_missing_key_ends_the_dump() -> None:
    for decode in (decode_offsets, decode_transaction_log, decode_share_group_state):
        with pytest.raises(CorruptError, match="missing key"):
            decode(Record(4, 0, None, b""))


def test_transactions_and_share_groups() -> None:
    key = TRANSACTION_RECORDS.encode_key(0, {"transactionalId": "t"})
    assert decode_transaction_log(Record(0, 0, key, None)) == (
        '{"type":"0","data":{"transactionalId":"t"}}',
        "<DELETE>",
    )
    key = SHARE_STATE_RECORDS.encode_key(1, {"groupId": "g"})
    assert decode_share_group_state(Record(0, 0, key, None))[0] == (
        '{"type":"1","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":0}}'
    )


@pytest.mark.parametrize(("number", "shown"), [(2, "PrepareCommit"), (8, "8"), (-1, "-1")])
def test_the_state_of_a_transaction_is_shown_by_its_name(number: int, shown: str) -> None:
    key = TRANSACTION_RECORDS.encode_key(0, {"transactionalId": "t"})
    value = TRANSACTION_RECORDS.encode_value(0, 0, {"transactionStatus": number})
    payload = decode_transaction_log(Record(0, 0, key, value))[1]
    assert payload is not None
    data = json.loads(payload)["data"]
    assert data["transactionStatus"] == shown
    assert list(data)[2:4] == ["transactionTimeoutMs", "transactionStatus"]


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_hostile_records_are_only_told_of(key: bytes, value: bytes | None) -> None:
    record = Record(0, 0, key, value)
    for decode in (
        decode_offsets,
        decode_transaction_log,
        decode_share_group_state,
        decode_cluster_metadata,
        decode_remote_log_metadata,
        class_decoder(STRING_DECODER, STRING_DECODER),
    ):
        decode(record)
