"""Questions about an archive have the answers that the directory has, of which it was made."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from support.archives import archive_in, archived
from support.golden import Golden


class Places(NamedTuple):
    """A directory, and the URL of its archive."""

    directory: Path
    url: str
    now_ms: int


@pytest.fixture(scope="module")
def places(golden_a: Golden, tmp_path_factory: pytest.TempPathFactory) -> Places:
    top = tmp_path_factory.mktemp("places")
    directory = top / "data"
    shutil.copytree(golden_a.root / "before-2", directory)
    archive = archive_in(top / "archive")
    archived(archive, directory, has_active=True)
    return Places(directory, archive.url, golden_a.made_at_2_ms)


def asked(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def same_names(answer: Any, places: Places) -> str:
    """The answer with the one name for both places, and no times that a question took."""
    text = json.dumps(answer, sort_keys=True)
    mounted = places.url.replace("://", ":", 1)
    for name in (places.url, f"/{mounted}", str(places.directory)):
        text = text.replace(name, "PLACE")
    return re.sub(r'("\w*(elapsed|duration|seconds)\w*"): [\d.e-]+', r"\1: 0", text)


@pytest.mark.parametrize(
    "question",
    [
        ["explain", "{}", "--all-segments", "--now", "{now}"],
        ["verify", "{}"],
        [
            "whatif",
            "{}",
            "--now",
            "{now}",
            "--estimate",
            "--set",
            "codec-none:retention.ms=1000",
        ],
    ],
    ids=lambda question: question[0],
)
def test_a_question_has_the_answer_of_the_directory(
    places: Places, question: Sequence[str]
) -> None:
    answers = [
        asked(*(each.format(place, now=places.now_ms) for each in question))
        for place in (places.directory, places.url)
    ]
    first, second = (json.loads(same_names(each, places)) for each in answers)
    assert first == second


def test_the_summary_is_that_of_the_directory_but_for_its_disk(places: Places) -> None:
    here, there = (
        json.loads(same_names(asked(place, "--now", places.now_ms), places))
        for place in (places.directory, places.url)
    )
    for answer in (here, there):
        for each in answer["log_dirs"]:
            each.pop("disk_bytes")
            each.pop("disk_free_bytes")
        answer["problems"] = [p for p in answer["problems"] if p["code"] != "disk-full"]
    assert here == there


def test_the_summary_says_that_it_is_of_object_storage(places: Places) -> None:
    shown = CliRunner().invoke(app, [places.url]).stdout
    assert "object storage" in shown
