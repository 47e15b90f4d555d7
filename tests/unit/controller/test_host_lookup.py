"""Texts that Java 17 takes for addresses, looks up, or refuses: as InetAddress.getByName does."""

from __future__ import annotations

import asyncio

import pytest

from cordwood.controller.host_lookup import HostText, classify_host, is_host, look_up_hosts

ADDRESSES = """
1.2.3.4 1.2.3 1.2 1 0 4294967295 1.2.65535 1.16777215 01.02.03.04 0177.0.0.1 08.1.1.1 1.2.3.010
000000000000001 ::1 [::1] ::ffff:1.2.3.4 [::ffff:1.2.3.4] fe80::1%1 fe80::1%99 ::1%lo ::1%0
1:2:3:4:5:6:7:8 :: 1:2:3:4:5:6:1.2.3.4 [fe80::1%1] ::00001 ::0001 127.1
"""
REFUSED = """
0x7f.1 0x7f000001 1.2.3.0x4 0000000000000001 [::1 [1.2.3.4] [] [ ::1] 1::2::3 ::ffff:1.2.3.4%1
fe80::1%no-such-interface fe80::1% fe80::1%1x ::1%-1 1:2:3:4:5:6:7 1:2:3:4:5:6:7:8:9 ::: ::1.2.3
1:2:3:4:5:6:7: 12345:: a:b beef:1 ::1/64 037777777777 1.0x10 1.2.3.4:80
"""
NAMES = """
localhost LOCALHOST 256.1.1.1 4294967296 1.2.65536 a.b 1.2.3.4. 1..2 .1 1.2.3.4.5 ABC beef g::1
1.2.3.4%1 1.2.3.4/8 -1 1e3 0xZZ %1 ]
"""


@pytest.mark.parametrize("text", ADDRESSES.split())
def test_addresses_need_no_look_up(text: str) -> None:
    assert classify_host(text) is HostText.ADDRESS
    assert is_host(text)


@pytest.mark.parametrize("text", ["", *REFUSED.split()])
def test_what_is_neither_address_nor_name_is_not_looked_up(text: str) -> None:
    assert classify_host(text) is HostText.INVALID
    assert not is_host(text)


@pytest.mark.parametrize("text", ["not an ip", "127.0.0.1/ ", *NAMES.split()])
def test_other_texts_are_names(text: str) -> None:
    assert classify_host(text) is HostText.NAME


def test_the_resolver_tells_which_names_have_an_address() -> None:
    asked = ["localhost", "not an ip", "with\0nul", "x" * 300, "\udcff", "localhost"]
    assert asyncio.run(look_up_hosts(asked)) == {"localhost"}
    assert is_host("localhost")
    assert not is_host("not an ip")
