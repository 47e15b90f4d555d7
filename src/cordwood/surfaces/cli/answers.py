"""The type of what each command prints with --json; the JSON schemas of these are published.

A command whose actions print different documents has a row for each, with the words that select it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cordwood.queries.advise.directories import Advice
from cordwood.queries.cleaner import BrokerCleaner, ClusterCleaners
from cordwood.queries.clock import ClockAnswer
from cordwood.queries.explain.answer import Explanation
from cordwood.queries.log_dirs import LogDirsSummary
from cordwood.queries.topics import (
    AlteredTopics,
    CreatedTopic,
    DeletedTopics,
    DescribedTopics,
    TopicNames,
)
from cordwood.queries.trash import EmptiedTrash, RestoredSegments, RestoredTopic
from cordwood.queries.verification import CheckedErasure, Verified
from cordwood.queries.whatif.answer import WhatIf
from cordwood.storage.holds import Holds
from cordwood.storage.trash_contents import TrashContents
from cordwood.surfaces.doctor.checks import Diagnosis

ANSWERS: Final[Mapping[str, Any]] = {
    "LOG_DIR": LogDirsSummary,
    "advise": Advice,
    "cleaner": BrokerCleaner | ClusterCleaners,
    "clock": ClockAnswer,
    "doctor": Diagnosis,
    "explain": Explanation,
    "hold": Holds,
    "topics --alter": AlteredTopics,
    "topics --create": CreatedTopic,
    "topics --delete": DeletedTopics,
    "topics --describe": DescribedTopics,
    "topics --list": TopicNames,
    "trash empty": EmptiedTrash,
    "trash list": TrashContents,
    "trash restore": RestoredSegments | RestoredTopic,
    "verify": Verified | CheckedErasure,
    "whatif": WhatIf,
}
