"""Groups as `cordwood consumer-groups --describe` shows them: offsets, members or state.

Source: org.apache.kafka.tools.consumer.group.ConsumerGroupCommand (4.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.groups import Group, Groups, Member
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.groups import ConsumedPartition, consumed_partitions, described_group
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.tool import Terminal

_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


def describe_groups(
    options: Options, cluster: ClusterClient, group_ids: Sequence[str], terminal: Terminal
) -> None:
    """Shows each group, in the order of their names.

    Raises:
        RefusedError: one is not there; then none is shown.
    """
    groups = [Groups(cluster).describe(group_id) for group_id in sorted(set(group_ids))]
    if options.has("json"):
        found = [described_group(group, consumed_partitions(group, cluster)) for group in groups]
        terminal.document(found)
        return
    verbose = options.has("verbose")
    if options.has("members"):
        for group in groups:
            _show_members(group, terminal, verbose=verbose)
    elif options.has("state"):
        for group in groups:
            _show_state(group, terminal, verbose=verbose)
    else:
        for group, rows in [(each, consumed_partitions(each, cluster)) for each in groups]:
            _show_offsets(group, rows, terminal, verbose=verbose)


def _is_shown(group: Group, count: int, terminal: Terminal) -> bool:
    if group.state == "Dead":
        terminal.line(f"\nError: Consumer group '{group.group_id}' does not exist.")
        return False
    if group.state == "Empty":
        terminal.error(f"\nConsumer group '{group.group_id}' has no active members.")
    elif group.state in _REBALANCING:
        terminal.error(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.")
    return count > 0


# ---- offsets


def _show_offsets(
    group: Group, rows: Sequence[ConsumedPartition], terminal: Terminal, *, verbose: bool
) -> None:
    if not _is_shown(group, len(rows), terminal):
        return
    header = ["GROUP", "TOPIC", "PARTITION"]
    header += ["LEADER-EPOCH"] if verbose else []
    header += ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    table = [header]
    for row in rows:
        epoch = None
        if row.committed is not None and row.committed.leader_epoch >= 0:
            epoch = row.committed.leader_epoch
        cells = [group.group_id, row.tp.topic, str(row.tp.partition)]
        cells += [_dash(epoch)] if verbose else []
        cells += [
            _dash(None if row.committed is None else row.committed.offset),
            _dash(row.end_offset),
            _dash(row.lag),
        ]
        member = row.member
        cells += (
            ["-", "-", "-"] if member is None else [member.member_id, member.host, member.client_id]
        )
        table.append(cells)
    widths = [15] * len(header)
    widths[2] = 10
    for column in (0, 1, len(header) - 3, len(header) - 2):
        widths[column] = max(15, *(len(cells[column]) for cells in table[1:]))
    for cells in table:
        terminal.write(f"\n{_padded(cells[:-1], widths)} {cells[-1]}".encode())
    terminal.line("")


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False))


def _dash(number: int | None) -> str:
    return "-" if number is None else str(number)


# ---- members


def _show_members(group: Group, terminal: Terminal, *, verbose: bool) -> None:
    has_instance = any(member.instance_id for member in group.members)
    has_both = {True, False} <= {member.is_upgraded for member in group.members}
    names = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    least = [15, 15, 17, 15, 15, 15]
    more = ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    table = [_member_cells(group, member) for member in group.members]
    columns = [0, 1, 2, 3, 4, 5] if has_instance else [0, 1, 3, 4, 5]
    shown = _is_shown(group, len(group.members), terminal)
    measured = table if shown else []
    widths = [
        least[index]
        if index == 5
        else max([least[index], *(len(cells[index]) for cells in measured)])
        for index in range(6)
    ]
    widths += [
        width if width == 15 else max([width, *(len(cells[6 + i]) for cells in measured)])
        for i, width in enumerate((15, 20, 15, 20))
    ]
    lines = [names + more + ["UPGRADED"], *table]
    for number, cells in enumerate(lines):
        text = "".join(f"{cells[index]:<{widths[index]}} " for index in columns)
        if verbose:
            text += " ".join(f"{cells[index]:<{widths[index]}}" for index in range(6, 10))
            text += f" {cells[10]}" if has_both else ""
        terminal.line(f"\n{text}" if number == 0 else text)


def _member_cells(group: Group, member: Member) -> list[str]:
    upgraded = "-" if member.is_upgraded is None else str(member.is_upgraded).lower()
    return [
        group.group_id,
        member.member_id,
        member.instance_id or "",
        member.host,
        member.client_id,
        str(len(member.partitions)),
        _dash(member.epoch),
        _shown_partitions(member.partitions),
        _dash(group.target_epoch),
        _shown_partitions(member.target or ()),
        upgraded,
    ]


def _shown_partitions(partitions: Sequence[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    shown = sorted(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items())
    return ";".join(shown) or "-"


# ---- state


def _show_state(group: Group, terminal: Terminal, *, verbose: bool) -> None:
    if not _is_shown(group, 1, terminal):
        return
    node = group.coordinator
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    cells = [
        group.group_id,
        f"{node.host}:{node.port}  ({node.id})",
        group.assignor or "-",
        group.state,
    ]
    widths = [max(15, len(cells[0])), max(25, len(cells[1])), 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [_dash(group.epoch), _dash(group.target_epoch)]
        widths += [15, 25]
    terminal.line(f"\n{_padded(header, widths)} #MEMBERS")
    terminal.line(f"{_padded(cells, widths)} {len(group.members)}")
