"""The tables, by name and by the options that they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.frames.catalog import TABLES, options_of, table_of
from cordwood.model.errors import ConfigError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "dataframes.md"


def test_the_page_names_each_table_and_each_column() -> None:
    page = PAGE.read_text()
    names = {name for table in TABLES.values() for name in (table.name, *table.schema.names)}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_a_table_has_a_name_in_whatever_case() -> None:
    assert table_of("Records") is TABLES["records"]
    with pytest.raises(ConfigError, match=r"option table: 'nosuch' is none of .*records"):
        table_of("nosuch")


def test_a_table_takes_the_options_that_it_has_and_no_table_is_an_error() -> None:
    given = {"ISOLATION": "all", "topics": "a"}
    assert options_of(TABLES["records"], given) == given
    with pytest.raises(ConfigError, match=r"^option nosuch: no table has such an option$"):
        options_of(TABLES["records"], {"nosuch": "1"})
