from __future__ import annotations

import io

from cordwood.surfaces.dump.documents import LogStart
from cordwood.surfaces.dump.output import Findings, Output


def test_text_keeps_its_order_and_the_bytes_of_file_names() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    output = Output(out, err)
    output.begin_file("a\udcff.log")
    for index in range(5000):
        output.write(f"{index} ")
    output.error("bad")
    assert out.getvalue().startswith(b"Dumping a\xff.log\n0 1 2 ")
    assert out.getvalue().endswith(b" 4999 ")
    assert err.getvalue() == b"bad\n"


def test_items_are_text_or_documents() -> None:
    for is_json, expected in (
        (False, b"Dumping f\nx: 1\n"),
        (True, b'{"file":"f","kind":"log","startingOffset":1}\n'),
    ):
        out = io.BytesIO()
        output = Output(out, io.BytesIO(), is_json=is_json)
        output.begin_file("f")
        output.item("x: 1", LogStart(file="f", starting_offset=1))
        output.flush()
        assert out.getvalue() == expected


def test_findings_come_in_the_order_of_kafka() -> None:
    findings = Findings()
    findings.gaps.compute_if_absent("g", dict).update({5: 8, -1: 2})
    findings.index_mismatches.compute_if_absent("i", dict).update({1: 2, 3: 4})
    findings.timestamps_out_of_order.compute_if_absent("t", list).append((5, 6))
    assert findings.lines() == [
        "Mismatches in :i",
        "  Index offset: 3, log offset: 4",
        "  Index offset: 1, log offset: 2",
        "Found out of order timestamp in :t",
        "  Index timestamp: 5, Previously indexed timestamp: 6",
        "Non-consecutive offsets in g",
        "  -1 is followed by 2",
        "  5 is followed by 8",
    ]
