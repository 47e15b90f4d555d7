"""Lines, bars and logs on one console."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.progress import Progress

from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli import clean_progress
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.log_options import (
    LogFormat,
    LogOptions,
    logging_to,
    parse_log_options,
)
from cordwood.surfaces.cli.screen import Screen
from support.terminal import FakeTerminal


def test_a_line_that_is_logged_while_bars_are_shown_goes_above_them() -> None:
    terminal = FakeTerminal(columns=100)
    screen = Screen(terminal, width=100)
    assert screen.is_terminal
    with logging_to(screen.line, LogOptions()), screen.bars(*clean_progress.columns()) as bars:
        progress = CleanProgress(bars)
        progress.begin("reading partitions", 2)
        progress.advance("orders")
        bars.refresh()
        logging.getLogger("cordwood.x").warning("a segment is damaged")
        progress.advance("users")
        progress.begin("planning", 1)
        progress.advance("orders")
        progress.finish()
    shown = terminal.lines()
    assert shown[0].endswith(" WARN a segment is damaged (cordwood.x)")
    assert [line.split("  ")[0].split(" ━")[0] for line in shown[1:]] == [
        "reading partitions",
        "planning",
    ]
    assert all("100%" in line for line in shown[1:])


def test_a_phase_of_unknown_length_shows_no_count_and_no_share_before_it_is_done() -> None:
    terminal = FakeTerminal(columns=100)
    screen = Screen(terminal, width=100)
    with screen.bars(*clean_progress.columns()) as bars:
        progress = CleanProgress(bars)
        progress.say("starting Spark")
        bars.refresh()
        assert "%" not in terminal.lines()[-1]
        progress.finish()
        bars.refresh()
        assert "100%" in terminal.lines()[-1]
        assert "1/1" not in terminal.lines()[-1]
        progress.bytes_done("7 partitions", "clean", 0, 1000)
        bars.refresh()
        assert "0%" in terminal.lines()[-1]
        assert "?" not in terminal.lines()[-1]


def test_where_no_terminal_is_there_are_no_control_characters_and_no_wrapping() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    assert not screen.is_terminal
    screen.line("x" * 500, style="red")
    with logging_to(screen.line, LogOptions()):
        logging.getLogger("cordwood.x").warning("y" * 500)
    first, second = stream.getvalue().splitlines()
    assert first == "x" * 500
    assert second.endswith(f" WARN {'y' * 500} (cordwood.x)")
    assert "\x1b" not in stream.getvalue()


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(["planning", "retention"]), st.integers(0, 5)),
        st.tuples(st.just("advance"), st.just("t"), st.just(0)),
        st.tuples(st.just("say"), st.just("starting Spark"), st.just(0)),
        st.tuples(st.sampled_from(["index", "rewrite"]), st.integers(0, 120), st.integers(0, 100)),
    ),
    max_size=60,
)


@given(_EVENTS)
@example([("index", 33, 34), ("index", 0, 89)])
def test_no_bar_goes_back_whatever_is_reported(events: list[tuple[str, int, int]]) -> None:
    with Screen(FakeTerminal(columns=100), width=100).bars() as bars:
        progress = CleanProgress(bars)
        shown: dict[int, float] = {}
        for kind, first, second in events:
            if kind == "begin":
                progress.begin(str(first), second)
            elif kind == "advance":
                progress.advance(str(first))
            elif kind == "say":
                progress.say(str(first))
            else:
                progress.bytes_done("t-0", kind, first, second)
            for task in bars.tasks:
                assert task.percentage >= shown.get(task.id, 0.0)
                shown[task.id] = task.percentage


def test_a_phase_that_comes_again_has_a_row_of_its_own() -> None:
    with Screen(FakeTerminal(columns=100), width=100).bars() as bars:
        progress = CleanProgress(bars)
        for _ in range(2):
            progress.begin("retention", 1)
            progress.advance("t")
            progress.say("starting Spark")
            for done in (0, 50, 100):
                progress.bytes_done("t-0", "rewrite", done, 100)
        rows = [task.description for task in bars.tasks]
    assert rows == [
        "retention",
        "starting Spark",
        "rewrite t-0",
        "retention (pass 2)",
        "starting Spark (pass 2)",
        "rewrite t-0",
    ]


# ---- what is logged


def logged(tmp_path: Path, options: LogOptions) -> list[str]:
    lines: list[str] = []
    with logging_to(lines.append, options):
        log = logging.getLogger("cordwood.x")
        log.info("started")
        log.warning("slow")
        try:
            raise ValueError("bad")
        except ValueError:
            log.exception("failed")
    return lines


def test_a_level_leaves_out_what_is_below_it(tmp_path: Path) -> None:
    assert len(logged(tmp_path, LogOptions(level="INFO"))) == 3
    assert len(logged(tmp_path, LogOptions())) == 2
    assert len(logged(tmp_path, LogOptions(level="ERROR"))) == 1


def test_json_is_a_document_to_a_line(tmp_path: Path) -> None:
    options = LogOptions(level="INFO", format=LogFormat.JSON)
    documents = [json.loads(line) for line in logged(tmp_path, options)]
    assert [each["level"] for each in documents] == ["INFO", "WARN", "ERROR"]
    assert documents[0]["logger"] == "cordwood.x"
    assert documents[0]["time"].endswith("Z")
    assert documents[2]["error"].endswith("ValueError: bad")


def test_a_log_file_is_appended_to_and_made_anew_when_it_is_moved(tmp_path: Path) -> None:
    path = tmp_path / "cordwood.log"
    path.write_text("before\n", encoding="utf-8")
    lines: list[str] = []
    with logging_to(lines.append, LogOptions(file=path)):
        logging.getLogger("cordwood.x").warning("one")
        path.rename(tmp_path / "cordwood.log.1")
        logging.getLogger("cordwood.x").warning("two")
    assert lines == []
    assert (tmp_path / "cordwood.log.1").read_text(encoding="utf-8").startswith("before\n[")
    assert path.read_text(encoding="utf-8").endswith(" WARN two (cordwood.x)\n")


@pytest.mark.parametrize(
    "given",
    [("LOUD", None, None), (None, "xml", None), (None, None, "/no/such/directory/log")],
)
def test_a_value_that_is_none_is_refused_with_its_option(
    given: tuple[str | None, str | None, str | None],
) -> None:
    with (
        pytest.raises(ConfigError, match="--log-"),
        logging_to(print, parse_log_options(*given)),
    ):
        pass


def test_the_time_left_follows_from_the_share_that_is_done_and_is_shown_from_a_tenth_on() -> None:
    now = [0.0]
    bars = Progress(get_time=lambda: now[0], auto_refresh=False)
    progress = CleanProgress(bars)
    shown = {}
    for seconds, done in ((0.0, 0), (5.0, 5), (20.0, 10), (100.0, 50), (90.0, 40), (4200.0, 99)):
        now[0] = seconds
        progress.overall(done, 100)
        (task,) = bars.tasks
        left = next(c for c in clean_progress.columns() if type(c).__name__ == "_TimeLeftColumn")
        shown[done] = str(left.render(task))
    assert shown == {
        0: "",
        5: "",
        10: "0:03:00 left",
        50: "0:01:40 left",
        40: "0:01:30 left",  # it does not go back
        99: "0:00:42 left",
    }
    progress.overall(100, 100)
    progress.overall(0, 10)  # of a second pass
    assert [task.percentage for task in bars.tasks] == [100, 0]
