"""Texts for names that are no quotas, recorded from kafka-configs of Kafka 4.4."""

from __future__ import annotations

import io

import pytest

from cordwood.surfaces.cli.tools import configs
from cordwood.surfaces.cli.tools.tool import Terminal


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "--user u --add-config one=1,two=2,three=3,two=4",
            "Only quota and SCRAM credential configs can be added for 'users' using "
            "--bootstrap-server. Unexpected config names: one,two,three",
        ),
        (
            "--user u --delete-config nonsense",
            "Only quota and SCRAM credential configs can be deleted for 'users' using "
            "--bootstrap-server. Unexpected config names: nonsense",
        ),
        (
            "--client c --delete-config SCRAM-SHA-256,b,a,b,c",
            "Only quota configs can be deleted for 'clients' using --bootstrap-server. "
            "Unexpected config names: a,b,c,SCRAM-SHA-256",
        ),
    ],
)
def test_names_that_are_no_quotas_are_refused_in_the_order_of_java(line: str, text: str) -> None:
    err = io.BytesIO()
    words = ["--bootstrap-server", "localhost:1", "--alter", *line.split()]
    assert configs.run(words, Terminal(io.BytesIO(), io.BytesIO(), err)) == 1
    assert text in err.getvalue().decode().splitlines()
