"""The logs that are wanted of directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.frames.options import parse_options
from cordwood.frames.survey import captured_logs
from cordwood.frames.wanted import Wanted
from cordwood.model.errors import ConfigError
from support.log_builder import LogBuilder, write_log_dir


def test_a_topic_that_is_not_there_is_named_with_the_option_that_asks_for_it(
    tmp_path: Path,
) -> None:
    log = LogBuilder("log-0")
    log.batch([(b"a", b"1")])
    log_dir = write_log_dir(tmp_path, [log])
    options = parse_options({"path": str(log_dir), "topics": "nosuch*"})
    message = r"^no topic in .* matches option topics nosuch\*; there is log$"
    with pytest.raises(ConfigError, match=message):
        captured_logs(options, Wanted())
