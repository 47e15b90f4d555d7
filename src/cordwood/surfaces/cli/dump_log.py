"""`cordwood dump-log`: what kafka-dump-log prints, without a JVM.

Source: org.apache.kafka.tools.DumpLogSegments (4.4.0).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from cordwood import __version__
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    METADATA_SNAPSHOT_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.log_options import logging_to, parse_log_options
from cordwood.surfaces.dump.decoders import (
    PayloadDecoder,
    class_decoder,
    decode_cluster_metadata,
    decode_offsets,
    decode_remote_log_metadata,
    decode_share_group_state,
    decode_transaction_log,
)
from cordwood.surfaces.dump.files import NamedFile
from cordwood.surfaces.dump.indexes import (
    IndexOptions,
    dump_offset_index,
    dump_time_index,
    dump_transaction_index,
)
from cordwood.surfaces.dump.log import LogOptions, dump_log_file
from cordwood.surfaces.dump.options import DumpOptions, parse_options, usage
from cordwood.surfaces.dump.output import Findings, Output
from cordwood.surfaces.dump.snapshots import dump_producer_snapshot

# The first of these that was given takes effect, whatever the order on the command line.
_KNOWN_SUFFIXES = frozenset(
    {
        LOG_SUFFIX,
        METADATA_SNAPSHOT_SUFFIX,
        INDEX_SUFFIX,
        TIME_INDEX_SUFFIX,
        PRODUCER_SNAPSHOT_SUFFIX,
        TXN_INDEX_SUFFIX,
    }
)
_TOPIC_DECODERS: Mapping[str, PayloadDecoder] = {
    "offsets-decoder": decode_offsets,
    "transaction-log-decoder": decode_transaction_log,
    "cluster-metadata-decoder": decode_cluster_metadata,
    "remote-log-metadata-decoder": decode_remote_log_metadata,
    "share-group-state-decoder": decode_share_group_state,
}


def dump_log(argv: list[str]) -> int:
    """Prints the files given in `argv` (without the command's name); returns the exit code.

    0: all were printed, even if their content is damaged; 1: wrong usage, or a file could not be
    be read to its end, which stderr then explains.
    """
    is_json = any(each in {"--json", "-json"} for each in argv)
    output = Output(sys.stdout.buffer, sys.stderr.buffer, is_json=is_json)
    try:
        options = parse_options(argv)
    except ConfigError as error:
        return _refuse(str(error), output)
    if not argv or options.has("help"):
        output.write(usage())
    elif options.has("version"):
        output.line(__version__)
    elif not options.has("files"):
        return _refuse('Missing required argument "[files]"', output)
    else:
        try:
            with logging_to(output.error, parse_log_options(*options.log)):
                return _dump(options, output)
        except ConfigError as error:
            return _refuse(str(error), output)
    output.flush()
    return 0 if argv else 1


def _refuse(reason: str, output: Output) -> int:
    output.error(f"{reason}\n\n{usage()}".rstrip())
    output.failed(reason)
    return 1


def _dump(options: DumpOptions, output: Output) -> int:
    findings = Findings()
    try:
        log_options = LogOptions(
            is_deep=options.is_deep,
            decoder=_decoder(options),
            skip_record_metadata=options.has("skip-record-metadata"),
            bytes_max=options.bytes_max,
            record_bytes_max=options.record_bytes_max,
        )
        index_options = IndexOptions(
            is_sanity_check=options.has("index-sanity-check"),
            is_quiet=options.has("verify-index-only"),
            message_bytes_max=options.message_bytes_max,
        )
        for name in options.files:
            _dump_file(NamedFile.parse(name), log_options, index_options, findings, output)
        output.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; without this, Python reports it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except CordwoodError as error:
        output.error(f"cordwood dump-log: {error}")
        output.failed(str(error))
        return 1
    except OSError as error:
        text = f"{error.filename}: {error.strerror}"
        output.error(f"cordwood dump-log: {text}")
        output.failed(text)
        return 1
    for line in findings.lines():
        output.error(line)
    return 0


def _dump_file(
    file: NamedFile,
    log_options: LogOptions,
    index_options: IndexOptions,
    findings: Findings,
    output: Output,
) -> None:
    output.begin_file(file.shown)
    suffix = file.suffix
    if suffix in _KNOWN_SUFFIXES:
        OS.facts_of(file.path)  # a missing file is reported as missing, whatever its name
    if suffix in {LOG_SUFFIX, METADATA_SNAPSHOT_SUFFIX}:
        dump_log_file(file, log_options, findings, output)
    elif suffix == INDEX_SUFFIX:
        dump_offset_index(file, index_options, findings, output)
    elif suffix == TIME_INDEX_SUFFIX:
        dump_time_index(file, index_options, findings, output)
    elif suffix == PRODUCER_SNAPSHOT_SUFFIX:
        dump_producer_snapshot(file, output)
    elif suffix == TXN_INDEX_SUFFIX:
        dump_transaction_index(file, output)
    else:
        output.error(f"Ignoring unknown file {file}")


def _decoder(options: DumpOptions) -> PayloadDecoder | None:
    if not options.should_print_data:
        return None
    for name, decoder in _TOPIC_DECODERS.items():
        if options.has(name):
            return decoder
    return class_decoder(options.key_decoder_class, options.value_decoder_class)
