"""Quotas and passwords of users, clients and addresses, as `cordwood configs` shows them.

Source: org.apache.kafka.tools.ConfigCommand (4.4.0): alterQuotaConfigs, describeQuotaConfigs,
alterUserScramCredentialConfigs; org.apache.kafka.server.config.QuotaConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.configs import Configs, QuotaEntity
from cordwood.client.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    Credential,
    alter_user,
    describe_users,
)
from cordwood.model.rng import SystemRng
from cordwood.queries.configs import DescribedQuotas
from cordwood.surfaces.cli.tools.config_entities import CLIENTS, IPS, USERS, Entities
from cordwood.surfaces.cli.tools.java_order import java_order, text_hash
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError
from cordwood.surfaces.dump.java_text import java_double

_QUOTAS = frozenset(
    {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
    }
)
_IP_QUOTAS = frozenset({"connection_creation_rate"})
_ENTITY_TYPES = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
_SHOWN_TYPES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_DOUBLE = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?\s*")
_ANY, _DEFAULT, _NAMED = 2, 1, 0


def alter_quotas(
    cluster: ClusterClient, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Sets and removes quotas, or passwords of a user.

    Raises:
        ToolError: a name is neither a quota nor a mechanism, or both are given together.
    """
    if entities.types[0] == IPS:
        unknown = [name for name in [*added, *deleted] if name not in _IP_QUOTAS]
        if unknown:
            raise ToolError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        _set_quotas(cluster, entities, added, deleted)
        return
    if entities.types[0] == CLIENTS or len(entities.types) == 2:
        _check_client(added, deleted)
    else:
        _check_user(entities, added, deleted)
    if any(name in _QUOTAS for name in [*added, *deleted]):
        _set_quotas(cluster, entities, added, deleted)
    else:
        _set_passwords(cluster, entities.names[0], added, deleted)


def _as_set(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of a HashSet."""
    return java_order(dict.fromkeys(names), str)


def _check_client(added: Mapping[str, str], deleted: Sequence[str]) -> None:
    for verb, names in (("added", added), ("deleted", deleted)):
        if other := _as_set(name for name in names if name not in _QUOTAS):
            raise ToolError(
                f"Only quota configs can be {verb} for 'clients' using --bootstrap-server. "
                f"Unexpected config names: {','.join(other)}"
            )


def _check_user(entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    for verb, given in (("added", added), ("deleted", deleted)):
        other = _as_set(name for name in given if name not in _QUOTAS and name not in MECHANISMS)
        if other:
            raise ToolError(
                f"Only quota and SCRAM credential configs can be {verb} for 'users' using "
                f"--bootstrap-server. Unexpected config names: {','.join(other)}"
            )
    names = [*added, *deleted]
    if any(name in MECHANISMS for name in names):
        if "" in entities.names:
            raise ToolError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
                "Credentials using --bootstrap-server."
            )
        if any(name in _QUOTAS for name in names):
            raise ToolError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' "
                "using --bootstrap-server."
            )


def _set_quotas(
    cluster: ClusterClient, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    configs = Configs(cluster)
    found = configs.describe_quotas(_components(entities))
    old = found[0][1] if found else {}
    invalid = [name for name in deleted if name not in old]
    if invalid:
        raise ToolError(f"Invalid config(s): {','.join(invalid)}")
    changes: dict[str, float | None] = {
        name: _parse_double(name, value) for name, value in added.items()
    }
    changes |= dict.fromkeys(deleted)
    entity = tuple(
        (_ENTITY_TYPES[kind], name or None)
        for kind, name in zip(entities.types, entities.names, strict=True)
    )
    configs.alter_quotas(entity, changes)


def _parse_double(name: str, text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ToolError(f"Cannot parse quota configuration value for {name}: {text}")
    return float(text.strip().rstrip("dDfF"))


def _components(entities: Entities) -> list[tuple[str, int, str | None]]:
    names: list[str | None] = [*entities.names, *[None] * len(entities.types)]
    if len(entities.names) > len(entities.types):
        raise ToolError("More entity names specified than entity types")
    return [
        (
            _ENTITY_TYPES[kind],
            _ANY if name is None else _NAMED if name else _DEFAULT,
            name or None,
        )
        for kind, name in zip(entities.types, names, strict=False)
    ]


def _set_passwords(
    cluster: ClusterClient, user: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    credentials = [_parse_credential(name, text) for name, text in added.items()]
    alter_user(
        cluster,
        user,
        deletions=deleted,
        credentials=credentials,
        salt=bytes.fromhex(SystemRng().unique_id()),
    )


def _parse_credential(mechanism: str, text: str) -> Credential:
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        name = mechanism.replace("-", "_")
        raise ToolError(f"Invalid credential property {name}={text}")
    iterations = int(match[1]) if match[1] and match[1] != "-1" else ITERATIONS_MIN
    if iterations < ITERATIONS_MIN:
        raise ToolError(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for "
            f"{mechanism}"
        )
    return Credential(mechanism, iterations, match[2].encode())


def describe_quotas(
    cluster: ClusterClient, entities: Entities, terminal: Terminal, *, is_json: bool
) -> None:
    """Shows quotas, and passwords if requested."""
    quotas = java_order(
        Configs(cluster).describe_quotas(_components(entities)),
        lambda quota: _entity_hash(quota[0]),
    )
    users = []
    has_users = entities.types[0] in {USERS, CLIENTS} and CLIENTS not in entities.types
    if has_users and "" not in entities.names:
        users = describe_users(cluster, entities.names)
    if is_json:
        terminal.document(
            DescribedQuotas(
                quotas=[{"entity": dict(entity), **values} for entity, values in quotas],
                credentials={user.name: dict(user.mechanisms) for user in users},
            )
        )
        return
    for entity, values in quotas:
        keys = java_order(values, str, capacity=len(values))
        shown = ", ".join(f"{key}={java_double(values[key])}" for key in keys)
        terminal.line(f"Quota configs for {_shown(entity)} are {shown}")
    for user in users:
        if user.error is not None:
            terminal.line(
                f"Error retrieving SCRAM credential configs for user-principal '{user.name}': "
                f"ExecutionException: {user.error.described}"
            )
            continue
        shown = ", ".join(f"{name}=iterations={count}" for name, count in user.mechanisms)
        terminal.line(f"SCRAM credential configs for user-principal '{user.name}' are {shown}")


def _shown(entity: QuotaEntity) -> str:
    names = dict(entity)
    return ", ".join(
        f"the default {shown}" if names[kind] is None else f"{shown} '{names[kind]}'"
        for kind, shown in _SHOWN_TYPES.items()
        if kind in names
    )


def _entity_hash(entity: QuotaEntity) -> int:
    """The value of ClientQuotaEntity.hashCode."""
    total = sum(text_hash(kind) ^ (text_hash(name) if name else 0) for kind, name in entity)
    return (31 + total) & 0xFFFFFFFF
