"""Passwords of users, as brokers keep them: salted and hashed many times.

Source: org.apache.kafka.common.security.scram.internals.ScramFormatter; RFC 5802; KIP-554.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError, require
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanisms and their numbers on the wire."""

ITERATIONS_MIN = 4096
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Credential(NamedTuple):
    """A password to be set."""

    mechanism: str
    iterations: int
    password: bytes


class ScramUser(NamedTuple):
    """A user's mechanisms with their iterations, or why they are unknown."""

    name: str
    mechanisms: tuple[tuple[str, int], ...]
    error: RefusedError | None = None


def describe_users(cluster: ClusterClient, names: Sequence[str]) -> list[ScramUser]:
    """The users that have passwords: of those named, or of all."""
    request = DescribeUserScramCredentialsRequest(
        users=[DescribeUserScramCredentialsRequest.UserName(name=name) for name in names] or None
    )
    answer = cluster.call(request)
    require(answer.error_code, answer.error_message)
    shown = {number: name for name, number in MECHANISMS.items()}
    return [
        ScramUser(
            result.user,
            tuple(
                (shown.get(c.mechanism, "UNKNOWN"), c.iterations) for c in result.credential_infos
            ),
            RefusedError(int(result.error_code), result.error_message)
            if result.error_code
            else None,
        )
        for result in answer.results
        if result.error_code != ErrorCode.RESOURCE_NOT_FOUND
    ]


def alter_user(
    cluster: ClusterClient,
    user: str,
    *,
    deletions: Sequence[str],
    credentials: Sequence[Credential],
    salt: bytes,
) -> None:
    """Deletes and sets a user's passwords; `salt` is random bytes."""
    request = AlterUserScramCredentialsRequest(
        deletions=[
            AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                name=user, mechanism=MECHANISMS[name]
            )
            for name in deletions
        ],
        upsertions=[
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user,
                mechanism=MECHANISMS[one.mechanism],
                iterations=one.iterations,
                salt=salt,
                salted_password=hashlib.pbkdf2_hmac(
                    _HASHES[one.mechanism], one.password, salt, one.iterations
                ),
            )
            for one in credentials
        ],
    )
    answer = cluster.call(request)
    for result in answer.results:
        require(result.error_code, result.error_message)
