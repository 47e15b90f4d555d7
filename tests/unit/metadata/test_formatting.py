"""Directories formatted as `kafka-storage format --standalone` does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from cordwood.format.clean_shutdown import build_clean_shutdown
from cordwood.metadata.feature_levels import DEFAULT_FEATURES
from cordwood.metadata.formatting import (
    Voters,
    format_directories,
    read_bootstrap_records,
    read_directory,
    read_previous_broker_epoch,
)
from cordwood.metadata.image import Endpoint
from cordwood.model.errors import ConfigError
from cordwood.testing.manual_clock import ManualClock
from support.controller_under_test import CLUSTER_ID, batches_in, names_of

ENDPOINT = Endpoint(name="CONTROLLER", host="localhost", port=9093)


def formatted(*log_dirs: Path, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> list[str]:
    """Formats directories; their ids."""
    ids = format_directories(
        log_dirs,
        node_id=node_id,
        cluster_id=cluster_id,
        clock=ManualClock(),
        controller_endpoints=[ENDPOINT],
    )
    return [str(each) for each in ids]


def format_as(
    features: Mapping[str, int], *log_dirs: Path, voters: Voters, is_controller: bool = True
) -> None:
    format_directories(
        log_dirs,
        node_id=1,
        cluster_id=CLUSTER_ID,
        clock=ManualClock(),
        controller_endpoints=[ENDPOINT],
        features=features,
        voters=voters,
        is_controller=is_controller,
    )


def files_below(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


VOTERS = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def test_the_first_directory_holds_the_voters_and_each_its_properties(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "d", tmp_path / "e")
    assert first != second
    assert files_below(tmp_path) == {
        "d/meta.properties",
        "d/bootstrap.checkpoint",
        f"d/{VOTERS}",
        "e/meta.properties",
        "e/bootstrap.checkpoint",
    }
    properties = read_directory(tmp_path / "e")
    assert properties is not None
    assert (properties.version, properties.node_id, properties.cluster_id) == (1, 1, CLUSTER_ID)
    batches = batches_in((tmp_path / "d/bootstrap.checkpoint").read_bytes())
    assert [names_of(batch) for batch in batches] == [
        ["SNAPSHOT_HEADER"],
        ["FeatureLevelRecord"] * 4,
        ["SNAPSHOT_FOOTER"],
    ]
    assert [names_of(batch) for batch in batches_in((tmp_path / "d" / VOTERS).read_bytes())] == [
        ["SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS"],
        ["SNAPSHOT_FOOTER"],
    ]


@pytest.mark.parametrize(
    ("voters", "controls"),
    [
        (Voters.SOLE, ["KRAFT_VERSION", "KRAFT_VOTERS"]),
        (Voters.UNKNOWN, ["KRAFT_VERSION"]),
        (Voters.STATIC, []),
    ],
)
def test_from_4_4_on_the_first_snapshot_has_the_records_too(
    tmp_path: Path, voters: Voters, controls: list[str]
) -> None:
    levels = {"metadata.version": 31, "share.version": 2, "group.version": 0}
    format_as(levels, tmp_path / "d", tmp_path / "e", voters=voters)
    assert files_below(tmp_path) == {"d/meta.properties", f"d/{VOTERS}", "e/meta.properties"}
    assert [names_of(batch) for batch in batches_in((tmp_path / "d" / VOTERS).read_bytes())] == [
        ["SNAPSHOT_HEADER", *controls],
        ["FeatureLevelRecord"] * 2,
        ["SNAPSHOT_FOOTER"],
    ]
    records = read_bootstrap_records(tmp_path / "d")
    assert {each.fields["name"]: each.fields["featureLevel"] for each in records} == {
        "metadata.version": 31,
        "share.version": 2,
    }


def test_a_broker_has_no_first_snapshot(tmp_path: Path) -> None:
    format_as({"metadata.version": 33}, tmp_path / "d", voters=Voters.STATIC, is_controller=False)
    assert files_below(tmp_path) == {"d/meta.properties"}
    assert [each.fields["name"] for each in read_bootstrap_records(tmp_path / "d")] == list(
        DEFAULT_FEATURES
    )


def test_formatted_ones_stay_as_they_are_and_new_ones_are_added(tmp_path: Path) -> None:
    (first,) = formatted(tmp_path / "d")
    before = {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)}
    again, second = formatted(tmp_path / "d", tmp_path / "e")
    assert again == first != second
    for name, data in before.items():
        assert (tmp_path / name).read_bytes() == data, name
    assert not (tmp_path / "e/__cluster_metadata-0").exists()


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    formatted(tmp_path / "d")
    with pytest.raises(ConfigError, match=r"Invalid cluster\.id"):
        formatted(tmp_path / "d", cluster_id="b3RoZXItY2x1c3Rlci1pZA")
    with pytest.raises(ConfigError, match="Stored node id 1 doesn't match"):
        formatted(tmp_path / "d", node_id=2)


def test_a_directory_id_is_that_of_one_directory(tmp_path: Path) -> None:
    formatted(tmp_path / "d", tmp_path / "e")
    copied = (tmp_path / "d" / "meta.properties").read_text()
    path = tmp_path / "e" / "meta.properties"
    path.write_text(copied)
    with pytest.raises(ConfigError, match=r"Duplicate directory ID .{22} found.*/d, but also"):
        formatted(tmp_path / "d", tmp_path / "e")
    assert len(set(formatted(tmp_path / "d", tmp_path / "d"))) == 1  # named twice
    for reserved in ("A" * 22, "A" * 20 + "Bg"):
        path.write_text(re.sub(r"directory\.id=.*", f"directory.id={reserved}", copied))
        with pytest.raises(ConfigError, match=r"Invalid reserved directory ID A+.* found in .*/e"):
            formatted(tmp_path / "d", tmp_path / "e")


@pytest.mark.parametrize(
    ("epochs", "expected"), [((5, 5), 5), ((5, 6), -1), ((5, None), -1), ((None, None), -1)]
)
def test_the_last_stop_was_clean_if_all_directories_say_so(
    tmp_path: Path, epochs: tuple[int | None, ...], expected: int
) -> None:
    log_dirs = []
    for number, epoch in enumerate(epochs):
        log_dir = tmp_path / str(number)
        log_dir.mkdir()
        log_dirs.append(log_dir)
        if epoch is not None:
            (log_dir / ".kafka_cleanshutdown").write_bytes(build_clean_shutdown(epoch))
    assert read_previous_broker_epoch(log_dirs) == expected
