"""The type of what each command prints with --json; the JSON schemas of these are published.

A command whose actions print different documents has a row for each, with the words that select it.
`console-consumer` and `dump-log` print one for each record or item. A command that fails before it
has an answer prints a `Failure`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cordwood.archiving.report import ArchiveReport, RestoreReport
from cordwood.cleanup.erasure.report import SealedReport
from cordwood.frames.result import QueryResult
from cordwood.queries.advise.directories import Advice
from cordwood.queries.broker_log_dirs import ClusterLogDirs
from cordwood.queries.cleaner import BrokerCleaner, ClusterCleaners
from cordwood.queries.cleaning import Cleaning
from cordwood.queries.clock import ClockAnswer
from cordwood.queries.cluster import (
    BrokerApis,
    ClusterEndpoint,
    ClusterId,
    UnregisteredBroker,
    UnregisteredController,
)
from cordwood.queries.configs import AlteredConfigs, ConfigEntities, DescribedQuotas
from cordwood.queries.explain.answer import Explanation
from cordwood.queries.features import DescribedFeature, UpdatedFeature
from cordwood.queries.group_expiry import GroupExpiry
from cordwood.queries.groups import (
    DeletedGroups,
    DeletedOffset,
    DescribedGroup,
    ListedConsumerGroup,
    ListedGroup,
    ResetOffset,
)
from cordwood.queries.log_dirs import LogDirsSummary
from cordwood.queries.quorum import QuorumReplication, QuorumStatus
from cordwood.queries.records import DeletedRecords, PartitionOffset, ProducedRecords, ReadRecord
from cordwood.queries.storage import (
    FeatureNeeds,
    FormattedStorage,
    RandomUuid,
    ReleaseFeatures,
    StorageInfo,
)
from cordwood.queries.topics import (
    AlteredTopics,
    CreatedTopic,
    DeletedTopics,
    DescribedTopics,
    TopicNames,
)
from cordwood.queries.transactions import (
    DescribedProducer,
    DescribedTransaction,
    HangingTransaction,
    HeldBack,
    ListedTransaction,
)
from cordwood.queries.trash import EmptiedTrash, RestoredSegments, RestoredTopic
from cordwood.queries.verification import CheckedErasure, Verified
from cordwood.queries.whatif.answer import WhatIf
from cordwood.storage.holds import Holds
from cordwood.storage.trash_contents import TrashContents
from cordwood.surfaces.cli.docs import Documentation, Page
from cordwood.surfaces.cli.tools.tool import Messages
from cordwood.surfaces.doctor.checks import Diagnosis
from cordwood.surfaces.dump.documents import AnyItem
from cordwood.surfaces.local_cluster.described import DescribedCluster
from cordwood.tables.report import TableReport

ANSWERS: Final[Mapping[str, Any]] = {
    "LOG_DIR": LogDirsSummary,
    "advise": Advice,
    "archive": ArchiveReport,
    "broker-api-versions": Sequence[BrokerApis],
    "clean": Cleaning,
    "cleaner": BrokerCleaner | ClusterCleaners,
    "clock": ClockAnswer,
    "cluster api-versions": Sequence[BrokerApis],
    "cluster cluster-id": ClusterId,
    "cluster list-endpoints": Sequence[ClusterEndpoint],
    "cluster up": DescribedCluster,
    "cluster unregister": UnregisteredBroker,
    "cluster unregister-controller": UnregisteredController,
    "configs --alter": AlteredConfigs,
    "configs --describe": ConfigEntities | DescribedQuotas,
    "console-consumer": ReadRecord,
    "console-producer": ProducedRecords,
    "consumer-groups --delete": DeletedGroups,
    "consumer-groups --delete-offsets": Sequence[DeletedOffset],
    "consumer-groups --describe": Sequence[DescribedGroup],
    "consumer-groups --describe --expiry": Sequence[GroupExpiry],
    "consumer-groups --list": Sequence[ListedConsumerGroup],
    "consumer-groups --reset-offsets": Sequence[ResetOffset],
    "consumer-groups --validate-regex": Messages,
    "delete-records": Sequence[DeletedRecords],
    "docs": Documentation | Page,
    "doctor": Diagnosis,
    "dump-log": AnyItem,
    "erase": SealedReport,
    "explain": Explanation,
    "features describe": Sequence[DescribedFeature],
    "features disable": Sequence[UpdatedFeature],
    "features downgrade": Sequence[UpdatedFeature],
    "features feature-dependencies": Sequence[FeatureNeeds],
    "features upgrade": Sequence[UpdatedFeature],
    "features version-mapping": ReleaseFeatures,
    "get-offsets": Sequence[PartitionOffset],
    "groups --list": Sequence[ListedGroup],
    "hold": Holds,
    "log-dirs --describe": ClusterLogDirs,
    "metadata-quorum describe --replication": Sequence[QuorumReplication],
    "metadata-quorum describe --status": QuorumStatus,
    "restore": RestoreReport,
    "sql": QueryResult,
    "storage feature-dependencies": Sequence[FeatureNeeds],
    "storage format": FormattedStorage | Messages,
    "storage info": StorageInfo,
    "storage random-uuid": RandomUuid,
    "storage version-mapping": ReleaseFeatures,
    "table": TableReport,
    "topics --alter": AlteredTopics,
    "topics --create": CreatedTopic,
    "topics --delete": DeletedTopics,
    "topics --describe": DescribedTopics,
    "topics --list": TopicNames,
    "transactions abort": Messages,
    "transactions blocking": Sequence[HeldBack],
    "transactions describe": Sequence[DescribedTransaction],
    "transactions describe-producers": Sequence[DescribedProducer],
    "transactions find-hanging": Sequence[HangingTransaction],
    "transactions forceTerminateTransaction": Messages,
    "transactions list": Sequence[ListedTransaction],
    "trash empty": EmptiedTrash,
    "trash list": TrashContents,
    "trash restore": RestoredSegments | RestoredTopic,
    "verify": Verified | CheckedErasure,
    "whatif": WhatIf,
}
