"""Rules by which records of a compacted log go whatever their keys, each from a moment on.

A rule is one class in a module of its own, and a row of `RULES`. All that follows from it is here,
or asks it: which records a compaction removes, when a log is due for it, what a verification
accepts, what an explanation and the linter say.
"""

from __future__ import annotations

from cordwood.cleanup.rules.removal_rule import RemovalRule
from cordwood.cleanup.rules.time_to_live import TimeToLive
from cordwood.configs.log_config import LogConfig

RULES: tuple[type[RemovalRule], ...] = (TimeToLive,)


def removal_rules(config: LogConfig) -> tuple[RemovalRule, ...]:
    """The rules that the settings of a topic switch on."""
    found = [rule.of(config) for rule in RULES]
    return tuple([each for each in found if each is not None])
