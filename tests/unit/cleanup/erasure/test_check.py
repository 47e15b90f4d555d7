"""The check of a report: one byte that has changed is found, and a later cleaning is no damage."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from cordwood.cleanup.erasure.check import Verdict, check_erasure
from cordwood.cleanup.erasure.report import (
    UNSIGNED,
    ErasureReport,
    build_report,
    read_signing_key,
    sealed,
)
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.model.documents import from_document
from cordwood.model.errors import ConfigError
from support.erasing import KEY, batches_of, erasable_log, erase_here
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, write_log_dir

SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CONFIGS = {"t": LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100)}


def erased(tmp_path: Path, signer: Ed25519PrivateKey | None = SIGNER) -> tuple[Path, Path]:
    """A directory after an erasure, and the file of its report."""
    codecs = (Codec.LZ4, Codec.NONE)
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0", codecs=codecs)])
    report = tmp_path / "report.json"
    result = erase_here(log_dir, "t", configs=CONFIGS, reason="request 93", operator="me")
    report.write_bytes(build_report(sealed(result.report, signer)))
    return log_dir, report


def verdicts(report: Path, *log_dirs: Path, **options: Any) -> set[Verdict]:
    return {finding.verdict for finding in check_erasure(report, log_dirs, **options)}


@pytest.mark.parametrize("signer", [None, SIGNER])
def test_a_report_is_right_as_it_was_written(
    tmp_path: Path, signer: Ed25519PrivateKey | None
) -> None:
    log_dir, report = erased(tmp_path, signer)
    assert verdicts(report) == {Verdict.OK}
    assert verdicts(report, log_dir) == {Verdict.OK}


def test_a_report_does_not_hold_the_key(tmp_path: Path) -> None:
    _, report = erased(tmp_path)
    text = report.read_bytes()
    assert KEY not in text
    assert KEY.hex().encode() not in text
    assert json.loads(text)["operator"] == "me"


@pytest.mark.parametrize("signer", [None, SIGNER])
def test_any_byte_of_a_report_that_changes_is_found(
    tmp_path: Path, signer: Ed25519PrivateKey | None
) -> None:
    _, report = erased(tmp_path, signer)
    data = report.read_bytes()
    rng = random.Random(3)
    for at in [0, len(data) - 1, *rng.sample(range(len(data)), 300)]:
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(7)
        report.write_bytes(changed)
        assert Verdict.FAILED in verdicts(report), at
    for changed_data in (data[:-1], data + b" ", b"", b"{}", b"[1]"):
        report.write_bytes(changed_data)
        assert verdicts(report) == {Verdict.FAILED}


def test_any_byte_of_a_file_that_changes_is_found(tmp_path: Path) -> None:
    log_dir, report = erased(tmp_path)
    rng = random.Random(4)
    known = {each["name"] for each in json.loads(report.read_bytes())["partitions"][0]["files"]}
    for path in sorted((log_dir / "t-0").iterdir()):
        data = path.read_bytes()
        if path.name not in known or not data:
            continue
        # Byte 12 of a batch is its leader epoch, which no CRC covers.
        for at in {12 % len(data), len(data) - 1, *rng.sample(range(len(data)), 3)}:
            changed = bytearray(data)
            changed[at] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            assert Verdict.FAILED in verdicts(report), f"{path.name} at byte {at}"
        path.write_bytes(data)
    assert verdicts(report) == {Verdict.OK}


def test_an_erased_record_that_is_back_is_found(tmp_path: Path) -> None:
    codecs = (Codec.LZ4, Codec.NONE)
    before = write_log_dir(tmp_path / "before", [erasable_log("t-0", codecs=codecs)])
    log_dir, report = erased(tmp_path)
    shutil.rmtree(log_dir / "t-0")
    shutil.copytree(before / "t-0", log_dir / "t-0")
    texts = [f.text for f in check_erasure(report, [log_dir]) if f.verdict is Verdict.FAILED]
    assert any("that were erased are there" in text for text in texts)


def test_a_later_cleaning_is_no_damage(tmp_path: Path) -> None:
    log_dir, report = erased(tmp_path)
    cleaned = clean_in_process(log_dir, CONFIGS, now_ms=NOW_MS, force=True)
    assert cleaned.partitions[0].status == "cleaned"
    assert verdicts(report) == {Verdict.OK, Verdict.CHANGED_SINCE}


def test_what_is_appended_later_is_no_damage(tmp_path: Path) -> None:
    log_dir, report = erased(tmp_path)
    first, *_, active = sorted((log_dir / "t-0").glob("*.log"))
    batch = bytearray(bytes(batches_of(first)[-1].raw))
    batch[:8] = int(active.name[:20]).to_bytes(8, "big")
    active.write_bytes(batch)
    assert verdicts(report) == {Verdict.OK, Verdict.CHANGED_SINCE}


def test_a_partition_that_is_gone_cannot_be_checked(tmp_path: Path) -> None:
    log_dir, report = erased(tmp_path)
    shutil.rmtree(log_dir / "t-0")
    assert verdicts(report, log_dir) == {Verdict.OK, Verdict.CHANGED_SINCE}


def test_another_signer_is_refused_where_one_is_named(tmp_path: Path) -> None:
    _, report = erased(tmp_path)
    mine = SIGNER.public_key().public_bytes_raw().hex()
    assert verdicts(report, public_key=mine) == {Verdict.OK}
    assert Verdict.FAILED in verdicts(report, public_key="00" * 32)
    value = from_document(ErasureReport, json.loads(report.read_bytes()))
    report.write_bytes(build_report(sealed(value, Ed25519PrivateKey.generate())))
    assert verdicts(report) == {Verdict.OK}
    assert Verdict.FAILED in verdicts(report, public_key=mine)


def rewritten(report: Path, without: str) -> None:
    """Writes an unsigned report again, without one of its names and with the hash of the rest."""
    value = json.loads(report.read_bytes())
    del value[without], value["signature"]
    rest = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    value["signature"] = {"algorithm": UNSIGNED, "sha256": hashlib.sha256(rest).hexdigest()}
    report.write_bytes(json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")


def test_a_report_of_a_version_that_counted_no_keys_is_checked(tmp_path: Path) -> None:
    _, report = erased(tmp_path, None)
    rewritten(report, "keys")
    assert verdicts(report) == {Verdict.OK}


def test_a_report_without_partitions_does_not_pass(tmp_path: Path) -> None:
    _, report = erased(tmp_path, None)
    rewritten(report, "partitions")
    assert verdicts(report) == {Verdict.FAILED}


def test_a_signing_key_is_an_ed25519_key_in_pem(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    options = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(SIGNER.private_bytes(*options))
    assert read_signing_key(path).private_bytes_raw() == bytes(range(32))
    path.write_bytes(generate_private_key(SECP256R1()).private_bytes(*options))
    with pytest.raises(ConfigError, match="not Ed25519"):
        read_signing_key(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="openssl genpkey"):
        read_signing_key(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_signing_key(tmp_path / "missing")


def test_a_report_of_an_erasure_that_failed_does_not_pass(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    result = erase_here(log_dir, "t", configs={"t": LogConfig(remote_storage_enable=True)})
    report = tmp_path / "report.json"
    report.write_bytes(build_report(sealed(result.report, None)))
    assert Verdict.FAILED in verdicts(report)
