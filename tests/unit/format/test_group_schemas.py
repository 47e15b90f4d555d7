from __future__ import annotations

from cordwood.format.group_schemas import CONSUMER_PROTOCOL, KEYS, VALUES
from cordwood.format.message_schema import schemas


def test_keys_and_values_belong_together() -> None:
    keys = {schema.key: schema.name for schema in schemas(KEYS).values()}
    values = {schema.key: schema.name for schema in schemas(VALUES).values()}
    assert keys.keys() == values.keys()
    for number, name in keys.items():
        assert values[number] == name.removesuffix("Key") + "Value"


def test_the_types_are_those_of_kafka() -> None:
    numbers = {schema.key for schema in schemas(KEYS).values()}
    assert numbers == set(range(24)) - {9, 18}
    assert schemas(VALUES)["GroupMetadataValue"].versions.highest == 4
    assert set(schemas(CONSUMER_PROTOCOL)) == {
        "ConsumerProtocolAssignment",
        "ConsumerProtocolSubscription",
    }
