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
        Bug(duplicates_appended, 0),
        Bug(high_watermark_without_followers, 0),
        Bug(pending_isr_not_counted, 18),
        Bug(divergence_ignored, 0),
        Bug(older_epoch_stamped, 0),
        Bug(truncation_below_the_high_watermark, 0),
        Bug(fenced_broker_stays_in_sync, 0),
        Bug(lagging_replica_added, 18),
        Bug(unclean_replica_elected, 1),
        Bug(marker_forgotten, 0),
        Bug(abort_marker_commits, 0),
        Bug(answered_before_committed, 4),
        Bug(partition_given_twice, 2),
        Bug(loaded_to_the_high_watermark, 34),
        Bug(producers_survive_truncation, 0),
        Bug(epochs_survive_truncation, 2),
        Bug(aborted_transactions_not_replicated, 0),
        Bug(unclean_start_taken_for_clean, 1),
        Bug(log_start_not_followed, 0),
        Bug(shrunk_isr_counted_at_once, 18),
        Bug(epoch_start_not_awaited, None),
        Bug(fetches_of_old_registrations_taken, 1),
        Bug(gap_kept, None),
        Bug(stale_broker_epochs_taken, 1),
        Bug(isr_members_of_old_registrations_taken, 1),
        Bug(stopping_broker_added, 14),
        Bug(partition_epoch_ignored, 0),
        Bug(crashed_broker_stays_eligible, 1),
        Bug(snapshot_with_all_in_sync, 27),
        Bug(producer_ids_given_twice, 0),
        Bug(fenced_broker_goes_on_leading, 0),
        Bug(epoch_stays_after_a_transaction, 0),
        Bug(open_transaction_forgotten, 1),
        Bug(timed_out_transaction_commits, 0),
        Bug(batches_of_old_producer_epochs_taken, 0),
        Bug(old_markers_taken, 0),
        Bug(offsets_of_aborted_transactions_kept, 1),
        Bug(unstable_offsets_answered, 10),
        Bug(stale_commits_taken, 0),
        Bug(partitions_left_out_are_given_up, 3),
        Bug(revocation_never_expires, 152),
        Bug(stale_member_epochs_taken, 0),
        Bug(instance_taken_over, 0),
        Bug(offsets_expire_under_members, 171),
    )
}
"""The bugs by name."""
