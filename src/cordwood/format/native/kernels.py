"""The kernels, in the form that is used here.

See `form` for the two forms. `FORM` is `compiled` or `numba`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.format.native.form import COMPILED, NUMBA, compiled_kernels

_compiled = compiled_kernels()
FORM = NUMBA if _compiled is None else COMPILED

if TYPE_CHECKING or _compiled is None:
    from cordwood.format.native.source.batches import scan_batches
    from cordwood.format.native.source.codecs import (
        compress_records,
        decompress_records,
        decompress_rows,
    )
    from cordwood.format.native.source.contents import (
        check_batches,
        list_contents,
        newest_of_shard,
    )
    from cordwood.format.native.source.index_entries import index_rows
    from cordwood.format.native.source.key_table import (
        grow_table,
        identify,
        mark_newest,
        merge_entries,
        split_entries,
        split_table,
    )
    from cordwood.format.native.source.machine import crc32c, crc32c_by_table
    from cordwood.format.native.source.rebuild import (
        assemble,
        index_written,
        put_header,
        retained_records,
    )
    from cordwood.format.native.source.record_fields import (
        gather_fields,
        list_headers,
        list_records,
    )
    from cordwood.format.native.source.record_longs import record_longs
    from cordwood.format.native.source.record_rows import partition_rows, put_records
    from cordwood.format.native.source.records import (
        index_batches,
        judge_watched,
        list_batches,
        probe_batches,
        watch_batches,
    )
    from cordwood.format.native.source.survivor_bits import count_bits, count_survivors, set_bits
    from cordwood.format.native.source.versions import (
        index_versions,
        judge_versions,
        judge_watched_versions,
        mark_pinned,
        put_versions,
        watch_versions,
    )
    from cordwood.format.native.source.walk import walk
else:
    from cordwood.format.native._compiled import (
        assemble,
        check_batches,
        compress_records,
        count_bits,
        count_survivors,
        crc32c,
        crc32c_by_table,
        decompress_records,
        decompress_rows,
        gather_fields,
        grow_table,
        identify,
        index_batches,
        index_rows,
        index_versions,
        index_written,
        judge_versions,
        judge_watched,
        judge_watched_versions,
        list_batches,
        list_contents,
        list_headers,
        list_records,
        mark_newest,
        mark_pinned,
        merge_entries,
        newest_of_shard,
        partition_rows,
        probe_batches,
        put_header,
        put_records,
        put_versions,
        record_longs,
        retained_records,
        scan_batches,
        set_bits,
        split_entries,
        split_table,
        walk,
        watch_batches,
        watch_versions,
    )

__all__ = [
    "FORM",
    "assemble",
    "check_batches",
    "compress_records",
    "count_bits",
    "count_survivors",
    "crc32c",
    "crc32c_by_table",
    "decompress_records",
    "decompress_rows",
    "gather_fields",
    "grow_table",
    "identify",
    "index_batches",
    "index_rows",
    "index_versions",
    "index_written",
    "judge_versions",
    "judge_watched",
    "judge_watched_versions",
    "list_batches",
    "list_contents",
    "list_headers",
    "list_records",
    "mark_newest",
    "mark_pinned",
    "merge_entries",
    "newest_of_shard",
    "partition_rows",
    "probe_batches",
    "put_header",
    "put_records",
    "put_versions",
    "record_longs",
    "retained_records",
    "scan_batches",
    "set_bits",
    "split_entries",
    "split_table",
    "walk",
    "watch_batches",
    "watch_versions",
]
