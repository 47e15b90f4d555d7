"""Topics named by options, compared with existing topics."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from cordwood.cleanup.plan.request import TOPICS_OPTION, CleanRequest
from cordwood.model.errors import ConfigError

_NAMED_MAX: Final = 5


def no_such_topic(
    globs: Sequence[str],
    log_dirs: Sequence[Path],
    topics: Collection[str],
    *,
    option: str = TOPICS_OPTION,
) -> str:
    """A sentence: no topic of the directories matches, and which they have.

    Args:
        globs: what was given.
        log_dirs: the directories.
        topics: theirs.
        option: how it is called where it was given.
    """
    where, named = ", ".join(map(str, log_dirs)), sorted(topics)
    has = ", ".join(named[:_NAMED_MAX]) or "no topic"
    rest = f" and {len(named) - _NAMED_MAX:,} more" if len(named) > _NAMED_MAX else ""
    return f"no topic in {where} matches {option} {', '.join(globs)}; there is {has}{rest}"


def missing_topics(topics: Collection[str], request: CleanRequest) -> list[str]:
    """A warning for each option that names no topic in `topics`.

    Raises:
        ConfigError: no named topic exists, or no topic matches a glob that must. A name with a
            typing error must not clean all topics with settings that were meant for one.
    """
    where = ", ".join(map(str, request.log_dirs))
    globs = () if request.may_lack_topics else request.topics
    warnings = [
        no_such_topic([glob], request.log_dirs, topics, option=request.topics_option)
        for glob in globs
        if not any(fnmatch.fnmatchcase(topic, glob) for topic in topics)
    ]
    none_chosen = bool(globs) and len(warnings) == len(globs)
    named_count, missing_count = len(globs), len(warnings)
    for option, names in request.named_topics.items():
        missing = [name for name in names if name not in topics]
        named_count += len(names)
        missing_count += len(missing)
        if missing:
            warnings.append(f"no partition of topic {', '.join(missing)} in {where} ({option})")
    if none_chosen or (named_count and missing_count == named_count):
        raise ConfigError("; ".join(warnings))
    return warnings
