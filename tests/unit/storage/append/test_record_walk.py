"""The walk over a batch's records: what it finds, and when the native one is loaded.

That both ways agree on any bytes is tested in tests/properties/test_record_walk.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.storage.append import record_walk
from cordwood.storage.append.record_walk import (
    MalformedRecordError,
    RecordFacts,
    RecordSummary,
    iter_facts,
    walk_plainly,
    walk_records,
    why_malformed,
)

RECORDS = [
    Record(0, 1000, b"k" * 70, b"v" * 200, (Header("h", b"x" * 90), Header("n", None))),
    Record(1, 500, None, None),
    Record(2, 100_000, b"", b"", (Header("", b""),)),
]


def payload_of(records: list[Record], *, last_offset: int | None = None) -> bytes:
    return build_batch(records, base_offset=0, last_offset=last_offset)[HEADER_BYTES:]


@pytest.fixture(params=["plain", "native"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Walks by `walk_records` go this way while the test runs."""
    if request.param == "native":
        record_walk.prepare()
    else:
        monkeypatch.setattr(record_walk._native, "walk", None)
        monkeypatch.setattr(record_walk._native, "_has_started", True)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_walk_tells_the_bounds_of_timestamps_and_counts_missing_keys() -> None:
    assert walk_records(payload_of(RECORDS), 3) == RecordSummary(
        ok=True,
        first_bad=-1,
        min_timestamp_delta=-500,
        max_timestamp_delta=99_000,
        null_keys=1,
        sequential_offsets=True,
    )


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_walk_takes_any_buffer_at_any_place(kind: type) -> None:
    data = payload_of(RECORDS)
    shifted = memoryview(kind(b"xyz" + data))[3:]
    assert walk_records(shifted, 3) == walk_plainly(data, 3)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("offsets", [(0, 2, 1), (0, 0, 0), (1, 2, 3), (0, 1, 3)])
def test_walk_sees_offsets_that_do_not_count_up(offsets: tuple[int, ...]) -> None:
    records = [Record(offset, 5, b"k", None) for offset in offsets]
    summary = walk_records(payload_of(records, last_offset=3), 3)
    assert summary.ok
    assert not summary.sequential_offsets


@pytest.mark.usefixtures("way")
def test_walk_names_the_first_bad_record_and_sums_up_those_before_it() -> None:
    data = payload_of(RECORDS)
    first = payload_of(RECORDS[:1])
    bad = walk_records(data[: len(first) + 3], 3)
    assert bad == RecordSummary(False, 1, 0, 0, 0, True)
    assert walk_records(data, 2) == RecordSummary(False, 2, -500, 0, 1, True)
    assert walk_records(data, 4) == RecordSummary(False, 3, -500, 99_000, 1, True)


@pytest.mark.usefixtures("way")
def test_walk_over_nothing() -> None:
    assert walk_records(b"", 0) == RecordSummary(True, -1, 0, 0, 0, True)
    assert walk_records(b"", 1) == RecordSummary(False, 0, 0, 0, 0, True)
    assert walk_records(b"", -1) == RecordSummary(False, 0, 0, 0, 0, True)
    assert walk_records(b"\0", 0) == RecordSummary(False, 0, 0, 0, 0, True)
    assert walk_records(payload_of(RECORDS), -1) == RecordSummary(False, 0, 0, 0, 0, True)
    assert walk_records(payload_of(RECORDS), -(1 << 31)) == RecordSummary(False, 0, 0, 0, 0, True)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("delta", [(1 << 63) - 1, -(1 << 63), 1 << 62])
def test_walk_reads_deltas_of_all_64_bits(delta: int) -> None:
    summary = walk_records(payload_of([Record(0, 0, b"", b""), Record(1, delta, b"", b"")]), 2)
    assert (summary.min_timestamp_delta, summary.max_timestamp_delta) == (
        min(0, delta),
        max(0, delta),
    )


@pytest.mark.usefixtures("way")
def test_walk_drops_bits_beyond_the_width_of_a_number_as_java_does() -> None:
    # Offset delta 0 and key length -1 in five bytes each, of which the last has bits too many.
    body = b"\0\0" + b"\x80\x80\x80\x80\x70" + b"\x81\x80\x80\x80\x70" + b"\x01\0"
    assert walk_records(bytes([len(body) << 1]) + body, 1) == RecordSummary(True, -1, 0, 0, 1, True)


def test_facts_are_sizes_and_deltas() -> None:
    assert list(iter_facts(payload_of(RECORDS), 3)) == [
        RecordFacts(0, 0, 70, 200),
        RecordFacts(-500, 1, -1, -1),
        RecordFacts(99_000, 2, 0, 0),
    ]


def test_facts_before_a_malformed_record_are_given() -> None:
    facts = iter_facts(payload_of(RECORDS[:2]), 3)
    assert [next(facts).key_size, next(facts).key_size] == [70, -1]
    with pytest.raises(MalformedRecordError, match="premature EOF reached"):
        next(facts)


def test_reason_of_a_malformed_count_is_told() -> None:
    assert why_malformed(b"", -3) == "Found invalid record count -3 in magic v2 batch"


# ---- loading


def run(code: str) -> str:
    """The output of a new process."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def test_a_process_that_only_validates_small_batches_loads_neither_numba_nor_numpy() -> None:
    found = run(
        "import sys\n"
        "from support.appends import three, validate\n"
        "validate(three(1_700_000_000_000))\n"
        "print(sorted({'numba', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules)))\n"
    )
    assert found == "[]"


def test_first_large_batch_starts_loading_the_native_walk_and_is_walked_meanwhile() -> None:
    found = run(
        "import threading\n"
        "from cordwood.format.record_batch import Record, build_batch\n"
        "from cordwood.storage.append import record_walk\n"
        "payload = build_batch([Record(0, 0, b'k', bytes(5000))], base_offset=0)[61:]\n"
        "print(record_walk.walk_records(payload, 1).ok, record_walk._native.walk is None)\n"
        "for thread in threading.enumerate():\n"
        "    if thread.name == 'load-record-walk':\n"
        "        print(thread.daemon)\n"
        "        thread.join()\n"
        "print(record_walk._native.walk is None, record_walk.walk_records(payload, 1).ok)\n"
    )
    assert found.split() == ["True", "True", "True", "False", "True"]


def test_without_the_extra_batches_are_walked_plainly_and_one_line_says_so() -> None:
    found = run(
        "import logging, sys, threading\n"
        "sys.modules['numpy'] = None\n"
        "logging.basicConfig(stream=sys.stdout, level=logging.INFO)\n"
        "from cordwood.format.record_batch import Record, build_batch\n"
        "from cordwood.storage.append import record_walk\n"
        "payload = build_batch([Record(0, 0, b'k', bytes(5000))], base_offset=0)[61:]\n"
        "for _ in range(2):\n"
        "    assert record_walk.walk_records(payload, 1).ok\n"
        "    for thread in threading.enumerate():\n"
        "        if thread.name == 'load-record-walk':\n"
        "            thread.join()\n"
    )
    assert found == (
        "INFO:cordwood.storage.append.record_walk:Validating large batches at full speed needs the "
        "extra 'native': numpy is not installed. Install it: pip install 'cordwood[native]'"
    )


def test_walk_that_cannot_be_loaded_is_told_once_and_done_without(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = record_walk._Native()
    monkeypatch.setitem(sys.modules, "cordwood.format.native.kernels", None)  # its import fails
    monkeypatch.setattr(record_walk, "_native", native)
    payload = payload_of([Record(0, 0, b"k", bytes(5000))])
    native._try_to_load()
    native._has_started = True
    assert "The native walk over records cannot be loaded." in caplog.text
    assert walk_records(payload, 1).ok
    with pytest.raises(ImportError, match="halted; None in sys"):
        record_walk.prepare()
