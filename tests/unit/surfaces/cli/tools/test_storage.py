"""`cordwood storage`: what it prints, and what the directories are good for."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from cordwood.metadata.formatting import read_bootstrap_records
from cordwood.metadata.releases import RELEASES, feature_levels, release_of
from cordwood.surfaces.cli.tools import storage
from cordwood.surfaces.cli.tools.tool import Terminal
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.storage_cases import CLUSTER_ID, write_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_files(tmp_path)
    return tmp_path


def run(root: Path, line: str) -> tuple[int, str, str]:
    out, err = io.BytesIO(), io.BytesIO()
    words = line.replace("%", str(root)).split()
    code = storage.run(words, Terminal(io.BytesIO(), out, err))
    said = [each.getvalue().decode().replace(str(root), "%") for each in (out, err)]
    return code, said[0], said[1]


def formatted(root: Path, name: str, options: str = "--standalone") -> str:
    code, out, err = run(root, f"format -t {CLUSTER_ID} -c %/{name}.properties {options}")
    assert (code, err) == (0, "")
    return out


def test_a_random_uuid_is_22_characters_and_begins_with_no_dash(root: Path) -> None:
    code, out, _ = run(root, "random-uuid")
    assert code == 0
    assert re.fullmatch(r"[\w][\w-]{21}\n", out)
    assert run(root, "random-uuid")[1] != out
    assert len(json.loads(run(root, "random-uuid --json")[1])["uuid"]) == 22


def test_a_directory_is_formatted_as_kafka_says_it(root: Path) -> None:
    first, second = formatted(root, "one").splitlines()
    assert first.startswith("Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(")
    assert first.endswith("], metadataVersionLevel=30, source=format command)")
    assert (
        second == "Formatting dynamic metadata voter directory %/one with metadata.version 4.3-IV0."
    )


def test_a_broker_serves_from_a_directory_that_was_formatted(root: Path) -> None:
    formatted(root, "one")
    with RunningBroker(log_dir=root / "one", engine=NoEngine) as broker:
        assert broker.broker.cluster_id == CLUSTER_ID
    code, out, _ = run(root, "info -c %/one.properties")
    assert code == 0
    assert f"cluster.id={CLUSTER_ID}" in out


def test_info_names_each_problem_and_exits_with_1(root: Path) -> None:
    assert run(root, "info -c %/one.properties") == (
        1,
        "Found problem:\n  %/one does not exist\n\n",
        "",
    )
    (root / "one").mkdir()
    assert run(root, "info -c %/one.properties") == (
        1,
        "Found log directory:\n  %/one\n\nFound problem:\n  %/one is not formatted.\n\n",
        "",
    )
    formatted(root, "one")
    assert run(root, "format -t other -c %/other.properties -s")[0] == 0
    code, out, _ = run(root, "info -c %/both.properties")
    assert code == 1
    assert "Mismatched cluster IDs between storage directories." in out
    assert (
        "Error loading %/bad/meta.properties: Unable to read node.id as a base-10 number."
        in (run(root, "info -c %/bad.properties")[1])
    )


def test_info_as_json(root: Path) -> None:
    formatted(root, "one")
    code, out, _ = run(root, "info -c %/mixed.properties --json")
    found = json.loads(out)
    assert code == 1
    assert found["directories"] == ["%/one"]
    assert found["metadata"]["cluster.id"] == CLUSTER_ID
    assert found["problems"] == ["%/new does not exist"]


def test_what_is_formatted_already_is_refused_or_passed_over(root: Path) -> None:
    formatted(root, "one")
    again = f"format -t {CLUSTER_ID} -c %/one.properties -s"
    code, out, err = run(root, again)
    assert (code, out) == (1, "")
    assert err.startswith("Log directory %/one is already formatted. Use --ignore-formatted")
    assert run(root, f"{again} -g") == (
        0,
        "All of the log directories are already formatted.\n",
        "",
    )
    code, _, err = run(root, "format -t other -c %/one.properties -s -g")
    assert code == 1
    assert "Invalid cluster.id in: %/one/meta.properties. Expected other, but read" in err
    code, _, err = run(root, f"format -t {CLUSTER_ID} -c %/node-2.properties -s -g")
    assert code == 1
    assert "Stored node id 1 doesn't match previous node id 2" in err


def test_levels_of_features_are_those_asked_for(root: Path) -> None:
    out = formatted(root, "features", "-s -f transaction.version=0 -f group.version=0 -r 4.2")
    assert "with metadata.version 4.2-IV1." in out
    records = read_bootstrap_records(root / "features")
    levels = {each.fields["name"]: each.fields["featureLevel"] for each in records}
    assert levels == {
        "metadata.version": 29,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }


def test_a_directory_of_4_4_is_formatted_as_4_4_does(root: Path) -> None:
    out = formatted(root, "release", "-s -r 4.4")
    assert "with metadata.version 4.4-IV2." in out
    assert [each.name for each in (root / "release").iterdir() if each.is_file()] == [
        "meta.properties"
    ]
    with RunningBroker(log_dir=root / "release", engine=NoEngine) as broker:
        assert broker.broker.metadata.image.metadata_version == 33
    formatted(root, "broker", "-N -r 4.4")
    assert [each.name for each in (root / "broker").iterdir()] == ["meta.properties"]


@pytest.mark.parametrize(
    ("release", "levels"),
    [
        ("3.9-IV0", {}),
        ("4.0-IV0", {"group": 1}),
        ("4.0", {"group": 1, "transaction": 2}),
        ("4.1-IV0", {"eligible.leader.replicas": 1, "group": 1, "transaction": 2}),
        ("4.2-IV0", {"eligible.leader.replicas": 1, "group": 1, "share": 1, "transaction": 2}),
        (
            "4.3",
            {"eligible.leader.replicas": 1, "group": 1, "share": 1, "streams": 1, "transaction": 2},
        ),
        (
            "4.4",
            {"eligible.leader.replicas": 1, "group": 1, "share": 2, "streams": 1, "transaction": 2},
        ),
    ],
)
def test_a_release_brings_the_levels_that_kafka_gives_it(
    release: str, levels: dict[str, int]
) -> None:
    name = release_of(release)
    assert name is not None
    found = feature_levels(name, {}, is_dynamic=True)
    assert found.pop("metadata.version") == RELEASES.index(name) + 7
    assert found == {f"{each}.version": level for each, level in levels.items()}


def test_what_a_release_brings_and_a_level_needs(root: Path) -> None:
    code, out, _ = run(root, "version-mapping -r 4.3")
    assert (code, out.splitlines()[:2]) == (0, ["metadata.version=30 (4.3)", "kraft.version=1"])
    code, out, _ = run(root, "version-mapping --json")
    assert json.loads(out)["features"]["share.version"] == 2
    line = "feature-dependencies -f eligible.leader.replicas.version=1 -f share.version=2"
    code, out, _ = run(root, line)
    assert (code, out.splitlines()) == (
        0,
        [
            "eligible.leader.replicas.version=1 requires:",
            "    metadata.version=23 (4.0-IV1)",
            "share.version=2 has no dependencies.",
        ],
    )


def test_a_release_is_named_by_its_level_or_by_its_version() -> None:
    assert [release_of(each) for each in RELEASES] == list(RELEASES)
    assert release_of("3.9") == "3.9-IV0"
    assert release_of("4.0.1") == "4.0-IV3"
    assert release_of("9.9") is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "too few arguments"),
        ("nope", "invalid choice: 'nope'"),
        ("random-uuid x", "unrecognized arguments: 'x'"),
        ("info", "argument --config/-c is required"),
        ("version-mapping -r 9.9", "Unknown metadata.version '9.9'"),
        ("feature-dependencies", "argument --feature/-f is required"),
        (
            "feature-dependencies -f share.version=",
            "Invalid version format:  for feature share.version",
        ),
        ("feature-dependencies -f share.version=x", "Invalid version format: x for feature"),
        ("feature-dependencies -f share.version=3", "Feature level 3 is not supported"),
        ("feature-dependencies -f metadata.version=35", "Unknown metadata.version 35"),
        ("feature-dependencies -f nope=1", "Unknown feature: nope"),
        ("format -t x -c %/one.properties -s -f metadata.version=34", "4.5-IV0 is not yet stable."),
        ("format -t x -c %/one.properties -s -f metadata.version=35", "are from 7 to 34."),
        ("format -c %/one.properties", "argument --cluster-id/-t is required"),
        ("info -c %/one.properties --standalone", "unrecognized arguments: '--standalone'"),
        ("format -t x -c %/one.properties -s -N", "not allowed with argument --standalone/-s"),
        ("format -t x -c %/one.properties --bogus", "unrecognized arguments: '--bogus'"),
        (
            "format -t x -c %/one.properties -s -r 3.9 -f eligible.leader.replicas.version=1",
            "could not be set to 1 because it depends on metadata.version level 23",
        ),
        ("format -t x -c %/none.properties", "NoSuchFileException: %/none.properties"),
        ("format -t x -c %/one.properties -s -S a", "--add-scram is not served"),
        ("format -t x -c %/one.properties -I 1@h:1:x", "--initial-controllers is not served"),
        ("format -t x -c %/wrong.properties -s", "Invalid value none for configuration num.part"),
        ("format -t x -c %/bad.properties -s", "No available log directories to format."),
    ],
)
def test_what_is_refused_exits_with_1_and_touches_nothing(root: Path, line: str, said: str) -> None:
    before = sorted(root.rglob("*"))
    code, _, err = run(root, line)
    assert code == 1
    assert said in err
    assert "Traceback" not in err
    assert sorted(root.rglob("*")) == before


def test_a_directory_that_cannot_be_written_to_is_named(root: Path) -> None:
    text = (root / "one.properties").read_text(encoding="utf-8")
    (root / "one.properties").write_text(
        text.replace(f"{root}/one", f"{root}/file/below"), encoding="utf-8"
    )
    code, _, err = run(root, f"format -t {CLUSTER_ID} -c %/one.properties -s")
    assert code == 1
    assert "%/file/below" in err
