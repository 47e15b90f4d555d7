from __future__ import annotations

import pytest

from cordwood.client.errors import UnservedProtocolError
from cordwood.client.transport import PlainTransport, Transports, resolve, transport_of
from cordwood.model.security_protocol import SecurityProtocol


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_security_protocol_without_a_transport_is_never_plain(protocol: str) -> None:
    with pytest.raises(UnservedProtocolError, match=f"^{protocol} is not supported: use PLAIN"):
        transport_of(SecurityProtocol[protocol], {})


def test_a_node_has_one_transport_of_a_protocol() -> None:
    transports = Transports()
    plain = transports.of(SecurityProtocol.PLAINTEXT)
    assert isinstance(plain, PlainTransport)
    assert transports.of(SecurityProtocol.PLAINTEXT) is plain


def test_hosts_are_resolved() -> None:
    assert resolve("127.0.0.1", 9092) == "127.0.0.1"
    assert resolve("no.such.invalid", 9092) is None
