"""Lists of many things: what is shown, what is summed up, and that both are all there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.biggest import TOP, Choice, Listing, Measure
from cordwood.surfaces.cli.tables import Column

NAMES = ("size", "name")
Item = tuple[str, int]
LISTING: Listing[Item] = Listing(
    heading="partition",
    name=lambda item: item[0],
    keys={"size": lambda item: item[1]},
    measures=(
        Measure(
            column=Column("size", is_number=True), text=lambda items: str(sum(i[1] for i in items))
        ),
        Measure(column=Column("why"), text=lambda items: "old", is_summed=False),
    ),
)
SIZES = st.lists(st.integers(min_value=0, max_value=1 << 40), max_size=60)


def shown(
    capsys: pytest.CaptureFixture[str], sizes: list[int], choice: Choice
) -> tuple[str, dict[str, int]]:
    """The title, and the sizes by the name of their row."""
    capsys.readouterr()
    LISTING.show("Partitions", [(f"t-{n}", size) for n, size in enumerate(sizes)], choice)
    title, _, *rows = capsys.readouterr().out.splitlines()
    found = {}
    for row in rows:
        words = row.split()
        name = " ".join(words[:2]) if words[1] == "more" else words[0]
        found[name] = int(words[len(name.split())])
    return title, found


@given(sizes=SIZES, top=st.none() | st.integers(min_value=0, max_value=70))
def test_the_total_is_the_sum_of_the_rows_and_of_the_rest(
    sizes: list[int], top: int | None
) -> None:
    choice = Choice(sort="size", top=top)
    items = [(f"t-{n}", size) for n, size in enumerate(sizes)]
    rows, rest = LISTING.split(items, choice)
    assert sorted([*rows, *rest]) == sorted(items)
    assert len(rows) == min(len(items), len(items) if top is None else top)
    assert [size for _, size in [*rows, *rest]] == sorted(sizes, reverse=True)


def test_the_rest_is_one_row_and_the_total_another(capsys: pytest.CaptureFixture[str]) -> None:
    title, rows = shown(capsys, list(range(1000)), Choice(sort="size"))
    assert title == "Partitions by size (20 of 1,000; --all shows all)"
    assert len(rows) == TOP + 2
    total, rest = rows.pop("total"), rows.pop("980 more")
    assert list(rows) == [f"t-{n}" for n in range(999, 979, -1)]
    assert total == sum(range(1000)) == sum(rows.values()) + rest


def test_all_rows_and_other_orders_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    everything = Choice.of("name", TOP, shows_all=True, keys=NAMES)
    title, rows = shown(capsys, list(range(100)), everything)
    assert title == "Partitions by name"
    assert list(rows) == [*sorted(f"t-{n}" for n in range(100)), "total"]
    _, one = shown(capsys, [7], Choice(sort="size"))
    assert one == {"t-0": 7}, "a sum of one row says nothing"


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="--sort age: expected one of size, name"):
        Choice.of("age", TOP, shows_all=False, keys=NAMES)
    with pytest.raises(ConfigError, match="--top -1"):
        Choice.of("size", -1, shows_all=False, keys=NAMES)
