from __future__ import annotations

import pytest

from cordwood.client.partitioner import murmur2, partition_of

# Kafka's own: org.apache.kafka.common.utils.UtilsTest.testMurmur2.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_hashes_are_those_of_kafka(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] & 0xFFFFFFFF


def test_a_partition_takes_the_hash_without_its_sign() -> None:
    assert partition_of(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
