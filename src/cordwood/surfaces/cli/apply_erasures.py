"""Erasures of a ledger applied before a cleaning: what a restored archive has brought back goes."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

from cordwood.cleanup.erasure.criteria import SALT_BYTES, Criteria, targets_of
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.model.errors import CordwoodError
from cordwood.model.extras import NATIVE, require_extra
from cordwood.surfaces.cli.clean_progress import CleanProgress


def apply_erasures(
    ledger: Path | None, request: CleanRequest, master: str, display: CleanProgress
) -> list[str]:
    """Applies a ledger to the directories of a cleaning; a line for each partition that had some.

    A dry run reports what would be erased. Without a ledger nothing is done.

    Raises:
        ConfigError, CorruptError: the ledger cannot be read.
        CordwoodError: records could not be erased; the cleaning must not begin.
    """
    if ledger is None:
        return []
    require_extra(NATIVE, what="--apply-erasures")
    # Compiled code is loaded where there is something to erase.
    from cordwood.cleanup.erasure.erase import erase  # noqa: PLC0415
    from cordwood.cleanup.erasure.ledger import read_ledger  # noqa: PLC0415
    from cordwood.cleanup.erasure.request import EraseRequest  # noqa: PLC0415
    from cordwood.surfaces.cli.erase_backend import CommandBackend  # noqa: PLC0415

    suppressions = (read_ledger(ledger),)
    wanted = EraseRequest(
        log_dirs=request.log_dirs,
        targets=targets_of(suppressions),
        criteria=Criteria(),
        suppressions=suppressions,
        resolve=request.resolve,
        now_ms=request.now_ms,
        id=f"erasure-{secrets.token_hex(6)}",
        salt=secrets.token_bytes(SALT_BYTES),
        ledger_salt=secrets.token_bytes(SALT_BYTES),
        dry_run=request.dry_run,
        max_extra_bytes=request.limits.space_max,
    )
    with closing(CommandBackend(wanted, master, display)) as backend:
        result = erase(wanted, backend, listener=display)
    if result.failed:
        name, reason = next(iter(result.failed.items()))
        raise CordwoodError(f"--apply-erasures {ledger}: {name}: {reason}. Nothing was cleaned")
    what = "would be erased again" if request.dry_run else "were erased again"
    return [
        f"{each.partition}: {each.erased} records {what}, by {ledger}"
        for each in result.report.partitions
        if each.erased
    ]
