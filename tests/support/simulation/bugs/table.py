"""All bugs by name, with a seed in which a checker finds each.

Which checker has found which is in docs/design/simulation.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from support.simulation.bugs.controllers import (
    crashed_broker_stays_eligible,
    fenced_broker_goes_on_leading,
    fenced_broker_stays_in_sync,
    isr_members_of_old_registrations_taken,
    partition_epoch_ignored,
    producer_ids_given_twice,
    snapshot_with_all_in_sync,
    stale_broker_epochs_taken,
    stopping_broker_added,
    unclean_replica_elected,
)
from support.simulation.bugs.groups import (
    answered_before_committed,
    instance_taken_over,
    loaded_to_the_high_watermark,
    offsets_expire_under_members,
    partition_given_twice,
    partitions_left_out_are_given_up,
    revocation_never_expires,
    stale_commits_taken,
    stale_member_epochs_taken,
)
from support.simulation.bugs.logs import (
    aborted_transactions_not_replicated,
    duplicates_appended,
    epochs_survive_truncation,
    producers_survive_truncation,
    skipped_fsync,
    unclean_start_taken_for_clean,
)
from support.simulation.bugs.planting import Bug
from support.simulation.bugs.replication import (
    divergence_ignored,
    epoch_start_not_awaited,
    fetches_of_old_registrations_taken,
    gap_kept,
    high_watermark_without_followers,
    lagging_replica_added,
    log_start_not_followed,
    older_epoch_stamped,
    pending_isr_not_counted,
    shrunk_isr_counted_at_once,
    truncation_below_the_high_watermark,
)
from support.simulation.bugs.transactions import (
    abort_marker_commits,
    batches_of_old_producer_epochs_taken,
    epoch_stays_after_a_transaction,
    marker_forgotten,
    offsets_of_aborted_transactions_kept,
    old_markers_taken,
    open_transaction_forgotten,
    timed_out_transaction_commits,
    unstable_offsets_answered,
)

BUGS: Final[Mapping[str, Bug]] = {
    each.put_in.__name__: each
    for each in (
        Bug(skipped_fsync, 1),
        Bug(duplicates_appended, 1),
        Bug(high_watermark_without_followers, 0),
        Bug(pending_isr_not_counted, 6),
        Bug(divergence_ignored, 0),
        Bug(older_epoch_stamped, 0),
        Bug(truncation_below_the_high_watermark, 1),
        Bug(fenced_broker_stays_in_sync, 1),
        Bug(lagging_replica_added, 6),
        Bug(unclean_replica_elected, 1),
        Bug(marker_forgotten, 0),
        Bug(abort_marker_commits, 0),
        Bug(answered_before_committed, 1),
        Bug(partition_given_twice, 2),
        Bug(loaded_to_the_high_watermark, 0),
        Bug(producers_survive_truncation, None),
        Bug(epochs_survive_truncation, None),
        Bug(aborted_transactions_not_replicated, None),
        Bug(unclean_start_taken_for_clean, None),
        Bug(log_start_not_followed, None),
        Bug(shrunk_isr_counted_at_once, None),
        Bug(epoch_start_not_awaited, None),
        Bug(fetches_of_old_registrations_taken, None),
        Bug(gap_kept, None),
        Bug(stale_broker_epochs_taken, None),
        Bug(isr_members_of_old_registrations_taken, None),
        Bug(stopping_broker_added, None),
        Bug(partition_epoch_ignored, None),
        Bug(crashed_broker_stays_eligible, None),
        Bug(snapshot_with_all_in_sync, None),
        Bug(producer_ids_given_twice, None),
        Bug(fenced_broker_goes_on_leading, None),
        Bug(epoch_stays_after_a_transaction, None),
        Bug(open_transaction_forgotten, None),
        Bug(timed_out_transaction_commits, None),
        Bug(batches_of_old_producer_epochs_taken, None),
        Bug(old_markers_taken, None),
        Bug(offsets_of_aborted_transactions_kept, None),
        Bug(unstable_offsets_answered, None),
        Bug(stale_commits_taken, None),
        Bug(partitions_left_out_are_given_up, None),
        Bug(revocation_never_expires, None),
        Bug(stale_member_epochs_taken, None),
        Bug(instance_taken_over, None),
        Bug(offsets_expire_under_members, None),
    )
}
"""The bugs by name."""
