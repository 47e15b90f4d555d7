from __future__ import annotations

import pytest

from cordwood.client.errors import NotSupportedError, RefusedError
from cordwood.client.session import ClientSession, NodeIdentity, SessionState, api_name
from cordwood.protocol.data import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

METADATA, API_VERSIONS = 3, 18


def asked(session: ClientSession) -> tuple[int, str | None, int]:
    """The version of ApiVersions, and the cluster and the node that it names."""
    frame = session.next_request()
    assert frame is not None
    assert frame.api_key == API_VERSIONS
    assert isinstance(frame.message, ApiVersionsRequest)
    return frame.version, frame.message.cluster_id, frame.message.node_id


def answered(low: int, high: int) -> ClientSession:
    found = ClientSession("c")
    keys = [ApiVersionsResponse.ApiVersion(api_key=METADATA, min_version=low, max_version=high)]
    found.on_answer(ApiVersionsResponse(api_keys=keys))
    return found


def test_a_session_is_ready_when_the_versions_are_known() -> None:
    session = ClientSession("c")
    assert session.state is SessionState.HANDSHAKE
    assert asked(session)[0] == 5
    session = answered(0, 9)
    assert (session.state, session.next_request()) == (SessionState.READY, None)


def test_a_refused_session_is_not_ready() -> None:
    session = ClientSession("c")
    session.on_answer(ApiVersionsResponse(error_code=35))
    with pytest.raises(RefusedError, match="The version of API is not supported"):
        session.on_answer(ApiVersionsResponse(error_code=35))
    assert session.state is SessionState.HANDSHAKE


@pytest.mark.parametrize(("named", "version"), [((0, 4), 4), ((0, 1), 1), (None, 0)])
def test_a_node_is_asked_again_in_the_version_that_it_names(
    named: tuple[int, int] | None, version: int
) -> None:
    session = ClientSession("c")
    keys = []
    if named is not None:
        low, high = named
        keys = [ApiVersionsResponse.ApiVersion(api_key=18, min_version=low, max_version=high)]
    session.on_answer(ApiVersionsResponse(error_code=35, api_keys=keys))
    assert asked(session)[0] == version
    session.on_answer(ApiVersionsResponse())
    assert session.next_request() is None


def test_the_node_that_is_meant_is_named() -> None:
    assert asked(ClientSession("c"))[1:] == (None, -1)
    named = ClientSession("c", NodeIdentity("cluster", 7))
    assert asked(named)[1:] == ("cluster", 7)
    with pytest.raises(RefusedError, match="Client metadata is stale"):
        named.on_answer(ApiVersionsResponse(error_code=129))


@pytest.mark.parametrize(
    ("served", "version_max", "version"),
    [((0, 9), None, 9), ((0, 99), None, 13), ((0, 99), 99, 13), ((0, 9), 7, 7), ((5, 9), 5, 5)],
)
def test_a_request_has_the_highest_version_in_common(
    served: tuple[int, int], version_max: int | None, version: int
) -> None:
    request = answered(*served).request(MetadataRequest(), version_max=version_max)
    assert (request.api_key, request.version) == (METADATA, version)


@pytest.mark.parametrize("served", [(50, 60), (8, 9)])
def test_a_request_without_a_version_in_common_is_refused(served: tuple[int, int]) -> None:
    with pytest.raises(NotSupportedError, match="The node does not support METADATA"):
        answered(*served).request(MetadataRequest(), version_max=7)


def test_apis_are_named_as_kafka_writes_them() -> None:
    assert (api_name(32), api_name(9999)) == ("DescribeConfigs", None)
