"""The report of an erasure: what was erased, proved by hashes of files, and signed.

The file of a report is one canonical JSON document: one that has any other byte is refused. The
signature, Ed25519, is over the document without its `signature`; an unsigned report has the SHA-256
of the same bytes, which shows damage but not who wrote it.

Source: RFC 8032 (Ed25519).
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.model.audit import FileErased, RecordsErased, audit
from cordwood.model.documents import ABSENT, from_document, to_document
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.extras import SIGN, require_extra
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT: Final = "cordwood erasure report 1"
ED25519: Final = "Ed25519"
UNSIGNED: Final = "none: SHA-256 only"
_HASH_BYTES: Final = 1 << 20


class ReportStatus(enum.StrEnum):
    """The end of an erasure; a dry run ends as planned, one that changed nothing as refused."""

    ERASED = "erased"
    PLANNED = "planned"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedKeys:
    """Keys that were erased, as hashes of a salt and the key; both are hexadecimal."""

    algorithm: str
    salt: str
    hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCriteria:
    """The criteria of an erasure: keys, an expression, or the ids of erasures of a ledger."""

    keys: HashedKeys | None = field(default=None, metadata=ABSENT)
    where: str | None = field(default=None, metadata=ABSENT)
    erasures: tuple[str, ...] | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """Size in bytes and SHA-256 of a file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedFile:
    """A file of a log before and after the erasure; None where there was none."""

    name: str
    before: FileFacts | None
    after: FileFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedPartition:
    """The number of erased records of a log, and their offsets; what is after it once it is done.

    `log_end_offset` is exclusive.
    """

    partition: str
    directory: str
    erased: int
    offsets: OffsetRanges
    records_before: int
    bytes_before: int
    records_after: int | None = field(default=None, metadata=ABSENT)
    bytes_after: int | None = field(default=None, metadata=ABSENT)
    log_end_offset: int | None = field(default=None, metadata=ABSENT)
    files: Sequence[ErasedFile] | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedBeside:
    """A file beside live logs that has such records; `after` once it is done."""

    path: str
    partition: str
    erased: int
    offsets: OffsetRanges
    before: FileFacts
    after: FileFacts | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """A report without its signature.

    `keys` has the number of records of each key, by the hash that `criteria` has of it; `removed`
    are paths, and `failed` has reasons by path or by replica.
    """

    format: str
    tool: str
    id: str
    time_ms: int
    operator: str
    reason: str
    status: ReportStatus
    topics: Sequence[str]
    criteria: Sequence[DescribedCriteria]
    keys: Mapping[str, int] = field(default_factory=dict)
    partitions: Sequence[ErasedPartition]
    beside: Sequence[ErasedBeside]
    removed: Sequence[str]
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The SHA-256 of a report, and if it is signed, the key and the signature; all hexadecimal."""

    algorithm: str
    sha256: str
    public_key: str | None = field(default=None, metadata=ABSENT)
    signature: str | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedReport(ErasureReport):
    """A report with its signature."""

    signature: Seal


def sealed(report: ErasureReport, key: Ed25519PrivateKey | None) -> SealedReport:
    """A report with its signature, or with its hash where there is no key."""
    message = _canonical(to_document(report))
    digest = hashlib.sha256(message).hexdigest()
    seal = Seal(algorithm=UNSIGNED, sha256=digest)
    if key is not None:
        seal = Seal(
            algorithm=ED25519,
            sha256=digest,
            public_key=key.public_key().public_bytes_raw().hex(),
            signature=key.sign(message).hex(),
        )
    values = {each.name: getattr(report, each.name) for each in fields(ErasureReport)}
    return SealedReport(**values, signature=seal)


def build_report(report: SealedReport) -> bytes:
    """The file of a report."""
    return _file_of(to_document(report))


def parse_report(data: bytes, *, path: str) -> SealedReport:
    """The report in a file, its hash and its signature checked.

    Raises:
        CorruptError: it is no report, or was changed after it was written.
        MissingExtraError: it is signed, and the package that checks signatures is not installed.
    """
    try:
        report = json.loads(data)
        if report["format"] != FORMAT:
            raise ValueError(f"format {report['format']!r}")
        seal = report["signature"]
        if _file_of(report) != data:
            raise ValueError("its bytes are not those that were written")
        message = _canonical({k: v for k, v in report.items() if k != "signature"})
        if hashlib.sha256(message).hexdigest() != seal["sha256"]:
            raise ValueError("its SHA-256 is another")
        if seal["algorithm"] == ED25519:
            _require_signed(message, seal)
        elif seal != {"algorithm": UNSIGNED, "sha256": seal["sha256"]}:
            raise ValueError(f"signature by {seal['algorithm']!r}")
        return from_document(SealedReport, report)
    except (CorruptError, ValueError, KeyError, TypeError) as error:
        raise CorruptError(
            f"not an erasure report as it was written ({error})", path=path
        ) from error


def _require_signed(message: bytes, seal: Mapping[str, Any]) -> None:
    require_extra(SIGN, what="the check of a signature")
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  # an extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(seal["public_key"]))
    try:
        public.verify(bytes.fromhex(seal["signature"]), message)
    except InvalidSignature:
        raise ValueError("its signature does not match") from None


def read_signing_key(path: Path, *, fs: FileSystem = OS) -> Ed25519PrivateKey:
    """The private key in a PEM file without passphrase, as `openssl genpkey` writes it.

    Raises:
        ConfigError: it cannot be read, or is no Ed25519 key.
        MissingExtraError: the package that signs is not installed.
    """
    require_extra(SIGN, what="--signing-key")
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  # an extra
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_private_key,
    )

    try:
        key = load_pem_private_key(fs.read_bytes(path), password=None)
    except OSError as error:
        raise ConfigError(f"--signing-key {path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"--signing-key {path}: not a private key in PEM without passphrase. Create one with: "
            "openssl genpkey -algorithm ed25519 -out FILE"
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigError(f"--signing-key {path}: a key of another kind, not Ed25519")
    return key


def audit_erasure(report: ErasureReport) -> None:
    """Notes in the audit log what is gone, by the report of an erasure that was no dry run."""
    for each in report.partitions:
        if each.erased and each.directory not in report.failed:
            audit(
                RecordsErased(
                    partition=TopicPartition.parse(each.partition),
                    directory=each.directory,
                    erasure=report.id,
                    records=each.erased,
                    offsets=each.offsets,
                    operator=report.operator,
                    reason=report.reason,
                )
            )
    for path in report.removed:
        audit(FileErased(path=path, erasure=report.id))


def hash_of(path: Path, *, fs: FileSystem = OS) -> FileFacts:
    """Size and SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    file = fs.open(path)
    position = 0
    try:
        file.read_ahead()
        while data := file.read_at(_HASH_BYTES, position):
            digest.update(data)
            position += len(data)
    finally:
        file.close()
    return FileFacts(size=position, sha256=digest.hexdigest())


def _file_of(report: Mapping[str, Any]) -> bytes:
    return json.dumps(report, indent=1, sort_keys=True).encode() + b"\n"


def _canonical(report: Mapping[str, Any]) -> bytes:
    return json.dumps(report, sort_keys=True, separators=(",", ":")).encode()
