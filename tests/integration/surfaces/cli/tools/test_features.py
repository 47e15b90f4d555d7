"""`cordwood features`; that it prints what Kafka's tool does is in tests/compat."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_levels_are_shown_and_changed(run: Run) -> None:
    said = run("features -B describe")
    assert (said.code, said.err) == (0, "")
    (line,) = (each for each in said.out.splitlines() if each.startswith("Feature: metadata.ver"))
    words = line.split()
    assert (words[3], words[5], words[7]) == ("3.3-IV3", "4.4-IV2", "4.3-IV0")
    said = run("features -B upgrade --feature metadata.version=31 --dry-run")
    assert (said.code, said.out) == (0, "metadata.version can be upgraded to 31.\n")
    said = run("features -B upgrade --feature metadata.version=31")
    assert (said.code, said.out) == (0, "metadata.version was upgraded to 31.\n")
    said = run("features -B downgrade --feature metadata.version=30")
    assert (said.code, said.out) == (0, "metadata.version was downgraded to 30.\n")
    said = run("features -B downgrade --feature metadata.version=29")
    assert said.code == 1
    assert said.out.startswith("Could not downgrade metadata.version to 29. The update failed for")
    assert said.err == "1 out of 1 operation(s) failed.\n"
    described = json.loads(run("features -B describe --json").out)
    levels = {each["feature"]: each["finalized"] for each in described}
    assert levels["metadata.version"] == 30


def test_a_node_is_asked_for_its_levels(run: Run) -> None:
    said = run("features -B describe --node-id 1")
    assert (said.code, said.err) == (0, "")
    assert said.out == run("features -B describe").out
    said = run("features -B describe --node-id 77")
    assert (said.code, said.out) == (1, "")
    assert "Node 77 is not known" in said.err


def test_what_is_refused(run: Run) -> None:
    for line, text in (
        ("describe --feature x=1", "unrecognized arguments: '--feature'"),
        ("describe --node-id -1", "Invalid node id -1: must be non-negative."),
        ("upgrade", "You must specify at least one feature to upgrade"),
        ("upgrade --feature x", "Can't parse feature=level string x: equals sign not found."),
        ("upgrade --feature x=y", "unable to parse y as a short."),
        ("upgrade --feature x=1 --feature x=2", "Feature x was specified more than once."),
        ("upgrade --feature x=1 --release-version 4.4", "Can not specify `release-version`"),
        ("upgrade --release-version 9.9", "Unknown metadata.version '9.9'"),
    ):
        said = run(f"features -B {line}")
        assert said.code == 1
        assert text in said.err
