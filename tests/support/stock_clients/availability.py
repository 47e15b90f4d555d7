"""Treatment of clients that cannot be run: a loud skip, and in CI a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.built_programs import ProgramUnavailableError
from support.kafka_programs import KafkaUnavailableError


@contextmanager
def nothing_missing() -> Iterator[None]:
    """Turns what is missing into a skip of the test, or under CI=true into its failure."""
    try:
        yield
    except (ProgramUnavailableError, KafkaUnavailableError) as error:
        reason = f"A STOCK CLIENT NOT CHECKED: {error}"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
