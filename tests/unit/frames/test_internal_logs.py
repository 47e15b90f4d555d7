"""The logs of internal topics, as far as they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.frames.internal_logs import InternalLog, internal_logs
from cordwood.frames.options import parse_options
from cordwood.model.errors import CorruptError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from support.log_builder import LogBuilder, write_log_dir

NAME = f"{GROUP_METADATA_TOPIC}-5"


def internal_log(root: Path, log: LogBuilder) -> InternalLog:
    log_dir = write_log_dir(root, [log, LogBuilder("other-0")], clean_shutdown=False)
    (found,) = internal_logs(GROUP_METADATA_TOPIC, parse_options({"path": str(log_dir)}))
    return found


def test_batches_are_those_from_the_log_start_offset_to_the_high_watermark(tmp_path: Path) -> None:
    log = LogBuilder(NAME)
    for number in range(5):
        log.batch([(b"k", b"v"), (b"l", b"v")])
        if number == 2:
            log.roll()
    log.log_start_offset, log.high_watermark = 3, 8
    found = internal_log(tmp_path, log)
    assert found.partition == 5
    assert [batch.base_offset for batch in found.batches()] == [2, 4, 6]
    assert found.size_bytes == sum(path.stat().st_size for path in (tmp_path / NAME).glob("*.log"))


def test_a_damaged_batch_is_named_with_its_place(tmp_path: Path) -> None:
    log = LogBuilder(NAME)
    log.put(b"k", b"v")
    log.roll()
    log.put(b"k", b"v")
    log.put(b"k", b"v")
    found = internal_log(tmp_path, log)
    path = tmp_path / NAME / "00000000000000000001.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="offset 2 has CRC") as caught:
        list(found.batches())
    assert (caught.value.path, caught.value.position) == (str(path), len(data) // 2)
