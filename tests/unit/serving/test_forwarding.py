"""Versions of forwarded requests that a broker names to its clients."""

from __future__ import annotations

from typing import cast

from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.serving.forwarding import Forwarding
from cordwood.serving.principal import Principal, principal_bytes, read_principal

_CREATE_TOPICS, _ADD_VOTER, _PRODUCE = 19, 80, 0
_OWN = {_PRODUCE: (3, 13), _CREATE_TOPICS: (2, 7), _ADD_VOTER: (0, 1)}


def advertised(controller: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    forwarding = Forwarding(cast("ActiveController", None), versions=lambda: controller)
    return forwarding.advertised(_OWN)


def test_clients_see_what_the_controller_serves_too() -> None:
    assert advertised({_CREATE_TOPICS: (2, 6)}) == {_PRODUCE: (3, 13), _CREATE_TOPICS: (2, 6)}
    assert advertised({_CREATE_TOPICS: (3, 9), _ADD_VOTER: (0, 0)}) == {
        _PRODUCE: (3, 13),
        _CREATE_TOPICS: (3, 7),
        _ADD_VOTER: (0, 0),
    }
    assert advertised({_CREATE_TOPICS: (8, 9)}) == {_PRODUCE: (3, 13)}


def test_before_the_controller_has_answered_clients_see_all() -> None:
    assert advertised({}) == _OWN


def test_a_principal_is_read_as_it_is_written() -> None:
    for principal in (Principal("User", "ANONYMOUS"), Principal("User", "Ünal/CN=x")):
        data = principal_bytes(principal)
        assert read_principal(data) == principal
        assert all(read_principal(data[:end]) is None for end in range(len(data) - 1))
    assert read_principal(None) is None
    assert read_principal(b"\0\1" + principal_bytes(Principal("User", "a"))[2:]) is None
