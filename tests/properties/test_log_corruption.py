"""Damage in a log directory: typed errors, an end, and no record that nobody wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from support import log_damage
from support.log_damage import DamageCase, run_cases
from support.log_damage_base import VARIANTS, base_of, batches_of

_CHUNK = 100


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Every case warns of what it finds."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "first",
    [
        *range(0, 500, _CHUNK),
        *(
            pytest.param(n, marks=[pytest.mark.nightly, pytest.mark.rotated])
            for n in range(500, 10_000, _CHUNK)
        ),
    ],
)
def test_damaged_files_give_typed_errors_and_never_a_record_that_was_not_written(
    first: int,
) -> None:
    counts, failures = run_cases(first, _CHUNK)
    assert not failures, "\n".join(
        f"python -m support.log_damage --seed {failure.seed}\n{failure}" for failure in failures
    )
    assert counts["cases"] == _CHUNK
    assert counts["appends"] > _CHUNK, "most logs are whole, and go on"


def test_a_case_is_the_same_each_time_it_is_run() -> None:
    first, second = DamageCase(7), DamageCase(7)
    assert str(first) == str(second)
    assert first.run() == second.run()


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_damage_every_log_is_served_whole(variant: str) -> None:
    base = base_of(variant)
    assert all(batches_of(segments) for segments in base.segments.values())
    for seed in range(3):
        case = DamageCase(seed)
        case.base, case.fs, case.damage = base, base.fs.clone(), []
        assert case.run() == {"cases": 1, "appends": len(base.segments)}


def test_a_record_that_nobody_wrote_would_be_found() -> None:
    case = DamageCase(0)
    base = base_of("small clean")
    case.base, case.fs, case.damage = base, base.fs.clone(), []
    partition = next(iter(base.segments))
    path = base.homes[partition] / str(partition) / "00000000000000000000.log"
    data = bytearray(case.fs.read_bytes(path))
    data[-1] ^= 1
    case.fs.write_durably(path, data)
    with pytest.raises(log_damage.DamageFailure, match=r"in place of|wrong CRC"):
        case.run()


def test_a_case_that_takes_too_long_is_stopped() -> None:
    def work() -> None:
        with log_damage.time_limit(0.01):
            while True:
                pass

    with pytest.raises(log_damage.TooLongError):
        work()
