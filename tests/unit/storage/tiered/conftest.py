"""The golden data of tiered storage, unpacked once."""

from __future__ import annotations

import pytest

from support.tiered_golden import TieredGolden


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> TieredGolden:
    """Directories that a real Kafka has left, not to be changed."""
    return TieredGolden.unpack(tmp_path_factory.mktemp("tiered"))
