"""The APIs of Kafka's protocol, each in a module of its own.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class KnownApi(NamedTuple):
    """An API: Kafka's name, that of its module, and its versions, both inclusive."""

    name: str
    module: str
    min_version: int
    max_version: int


APIS: Final = {
    0: KnownApi("Produce", "produce", 3, 13),
    1: KnownApi("Fetch", "fetch", 4, 18),
    2: KnownApi("ListOffsets", "list_offsets", 1, 11),
    3: KnownApi("Metadata", "metadata", 0, 13),
    8: KnownApi("OffsetCommit", "offset_commit", 2, 10),
    9: KnownApi("OffsetFetch", "offset_fetch", 1, 10),
    10: KnownApi("FindCoordinator", "find_coordinator", 0, 6),
    11: KnownApi("JoinGroup", "join_group", 0, 9),
    12: KnownApi("Heartbeat", "heartbeat", 0, 4),
    13: KnownApi("LeaveGroup", "leave_group", 0, 5),
    14: KnownApi("SyncGroup", "sync_group", 0, 5),
    15: KnownApi("DescribeGroups", "describe_groups", 0, 6),
    16: KnownApi("ListGroups", "list_groups", 0, 5),
    17: KnownApi("SaslHandshake", "sasl_handshake", 0, 1),
    18: KnownApi("ApiVersions", "api_versions", 0, 4),
    19: KnownApi("CreateTopics", "create_topics", 2, 7),
    20: KnownApi("DeleteTopics", "delete_topics", 1, 6),
    21: KnownApi("DeleteRecords", "delete_records", 0, 2),
    22: KnownApi("InitProducerId", "init_producer_id", 0, 6),
    23: KnownApi("OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4),
    24: KnownApi("AddPartitionsToTxn", "add_partitions_to_txn", 0, 5),
    25: KnownApi("AddOffsetsToTxn", "add_offsets_to_txn", 0, 4),
    26: KnownApi("EndTxn", "end_txn", 0, 5),
    27: KnownApi("WriteTxnMarkers", "write_txn_markers", 1, 2),
    28: KnownApi("TxnOffsetCommit", "txn_offset_commit", 0, 5),
    29: KnownApi("DescribeAcls", "describe_acls", 1, 3),
    30: KnownApi("CreateAcls", "create_acls", 1, 3),
    31: KnownApi("DeleteAcls", "delete_acls", 1, 3),
    32: KnownApi("DescribeConfigs", "describe_configs", 1, 4),
    33: KnownApi("AlterConfigs", "alter_configs", 0, 2),
    34: KnownApi("AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2),
    35: KnownApi("DescribeLogDirs", "describe_log_dirs", 1, 5),
    36: KnownApi("SaslAuthenticate", "sasl_authenticate", 0, 2),
    37: KnownApi("CreatePartitions", "create_partitions", 0, 3),
    38: KnownApi("CreateDelegationToken", "create_delegation_token", 1, 3),
    39: KnownApi("RenewDelegationToken", "renew_delegation_token", 1, 2),
    40: KnownApi("ExpireDelegationToken", "expire_delegation_token", 1, 2),
    41: KnownApi("DescribeDelegationToken", "describe_delegation_token", 1, 3),
    42: KnownApi("DeleteGroups", "delete_groups", 0, 2),
    43: KnownApi("ElectLeaders", "elect_leaders", 0, 2),
    44: KnownApi("IncrementalAlterConfigs", "incremental_alter_configs", 0, 1),
    45: KnownApi("AlterPartitionReassignments", "alter_partition_reassignments", 0, 1),
    46: KnownApi("ListPartitionReassignments", "list_partition_reassignments", 0, 0),
    47: KnownApi("OffsetDelete", "offset_delete", 0, 0),
    48: KnownApi("DescribeClientQuotas", "describe_client_quotas", 0, 1),
    49: KnownApi("AlterClientQuotas", "alter_client_quotas", 0, 1),
    50: KnownApi("DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0),
    51: KnownApi("AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0),
    52: KnownApi("Vote", "vote", 0, 2),
    53: KnownApi("BeginQuorumEpoch", "begin_quorum_epoch", 0, 1),
    54: KnownApi("EndQuorumEpoch", "end_quorum_epoch", 0, 1),
    55: KnownApi("DescribeQuorum", "describe_quorum", 0, 2),
    56: KnownApi("AlterPartition", "alter_partition", 2, 3),
    57: KnownApi("UpdateFeatures", "update_features", 0, 2),
    58: KnownApi("Envelope", "envelope", 0, 0),
    59: KnownApi("FetchSnapshot", "fetch_snapshot", 0, 1),
    60: KnownApi("DescribeCluster", "describe_cluster", 0, 2),
    61: KnownApi("DescribeProducers", "describe_producers", 0, 0),
    62: KnownApi("BrokerRegistration", "broker_registration", 0, 4),
    63: KnownApi("BrokerHeartbeat", "broker_heartbeat", 0, 2),
    64: KnownApi("UnregisterBroker", "unregister_broker", 0, 0),
    65: KnownApi("DescribeTransactions", "describe_transactions", 0, 0),
    66: KnownApi("ListTransactions", "list_transactions", 0, 2),
    67: KnownApi("AllocateProducerIds", "allocate_producer_ids", 0, 0),
    68: KnownApi("ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1),
    69: KnownApi("ConsumerGroupDescribe", "consumer_group_describe", 0, 1),
    70: KnownApi("ControllerRegistration", "controller_registration", 0, 0),
    71: KnownApi("GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0),
    72: KnownApi("PushTelemetry", "push_telemetry", 0, 0),
    73: KnownApi("AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0),
    74: KnownApi("ListConfigResources", "list_config_resources", 0, 1),
    75: KnownApi("DescribeTopicPartitions", "describe_topic_partitions", 0, 0),
    76: KnownApi("ShareGroupHeartbeat", "share_group_heartbeat", 1, 1),
    77: KnownApi("ShareGroupDescribe", "share_group_describe", 1, 1),
    78: KnownApi("ShareFetch", "share_fetch", 1, 2),
    79: KnownApi("ShareAcknowledge", "share_acknowledge", 1, 2),
    80: KnownApi("AddRaftVoter", "add_raft_voter", 0, 1),
    81: KnownApi("RemoveRaftVoter", "remove_raft_voter", 0, 0),
    82: KnownApi("UpdateRaftVoter", "update_raft_voter", 0, 0),
    83: KnownApi("InitializeShareGroupState", "initialize_share_group_state", 0, 0),
    84: KnownApi("ReadShareGroupState", "read_share_group_state", 0, 0),
    85: KnownApi("WriteShareGroupState", "write_share_group_state", 0, 1),
    86: KnownApi("DeleteShareGroupState", "delete_share_group_state", 0, 0),
    87: KnownApi("ReadShareGroupStateSummary", "read_share_group_state_summary", 0, 1),
    88: KnownApi("StreamsGroupHeartbeat", "streams_group_heartbeat", 0, 0),
    89: KnownApi("StreamsGroupDescribe", "streams_group_describe", 0, 0),
    90: KnownApi("DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1),
    91: KnownApi("AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0),
    92: KnownApi("DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0),
}
"""Every API by its key."""
