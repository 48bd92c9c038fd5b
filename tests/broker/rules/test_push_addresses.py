"""URLs of targets: what is refused and why, and the form in which the rest is stored. Then address
rules against a table written by hand, and by properties against the standard library.

Each refused address is the first, the last or a well-known one of its range; each neighbour outside
of a range must be permitted, so that the table refuses no more than it names.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.rules.push_addresses import (
    AddressRules,
    check_url,
    embedded,
    parse_networks,
    refused_literal,
)
from delaylog.contract.calls.targets import URL_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTP://EXAMPLE.com:80/a?b=c", "http://example.com/a?b=c"),
        ("https://example.com?to=a@b", "https://example.com/?to=a@b"),
        ("https://example.com/a[1]", "https://example.com/a%5B1%5D"),
        ("https://bücher.de/x?q=ü", "https://xn--bcher-kva.de/x?q=%C3%BC"),
        ("http://127。0。0。1/", "http://127.0.0.1/"),
        ("http://①②⑦.0.0.1/", "http://127.0.0.1/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
        ("http://0x7f.1/", "http://0x7f.1/"),
        ("https://a_b.example.com./", "https://a_b.example.com./"),
    ],
)
def test_a_url_is_stored_in_one_form(text: str, canonical: str) -> None:
    assert check_url(text) == canonical
    assert check_url(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with https:// or http://"),
        ("example.com", "begins with https:// or http://"),
        ("//example.com/", "begins with https:// or http://"),
        ("http:example.com", "begins with https:// or http://"),
        ("ftp://example.com/", "begins with https:// or http://"),
        ("file:///etc/passwd", "begins with https:// or http://"),
        ("gopher://127.0.0.1:6379/_", "begins with https:// or http://"),
        ("unix:///run/x.sock", "begins with https:// or http://"),
        ("http:///path", "is not a host name"),
        ("http://", "is not a host name"),
        ("http://user@example.com/", "no user name"),
        ("http://user:word@example.com/", "no user name"),  # pragma: allowlist secret
        ("http://@example.com/", "no user name"),
        ("http://example.com@127.0.0.1/", "no user name"),
        ("http://example.com/#part", "no fragment"),
        ("http://example.com/#", "no fragment"),
        ("http://exam ple.com/", "no spaces"),
        ("http://exam\nple.com/", "no spaces"),
        ("http://example.com/\r\nX: y", "no spaces"),
        ("http://example.com\t/", "no spaces"),
        ("http://example.com\\@127.0.0.1/", "backslashes"),
        ("http://exa\u202emple.com/", "control characters"),
        ("http://[fe80::1%25eth0]/", "is not a host name"),
        ("http://[::1/", "is not a URL"),
        ("http://[v1.x]/", "is not a"),
        ("http://%31%32%37.0.0.1/", "is not a host name"),
        ("http://2130706433/", "is not a host name"),
        ("http://0177.0.0.1/", "is not a host name"),
        ("http://127.1/", "is not a host name"),
        ("http://127.0.0.1./", "is not a host name"),
        ("http://a..b/", "is not a host name"),
        ("http://-a.example/", "is not a host name"),
        ("http://" + "a." * 130 + "de/", "is not a"),
        ("http://example.com:99999/", "is not a URL"),
        ("http://example.com:x/", "is not a URL"),
        ("http://example.com/" + "a" * URL_BYTES_MAX, "at most 2048 bytes"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_url(text)


PUBLIC = AddressRules()
_REFUSED = """
0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1
127.255.255.255 168.63.129.16 169.254.0.0 169.254.169.254 169.254.255.255 172.16.0.0
172.31.255.255 192.0.0.0 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.0 192.168.255.255 198.18.0.0
198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1
::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1 ::ffff:169.254.169.254
64:ff9b::127.0.0.1 64:ff9b::8.8.8.8 64:ff9b:1::1 64:ff9b:1:ffff:ffff:ffff:ffff:ffff 100::1 200::1
4000::1 1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 2001::1 2001:0:1:2:3:4:5:6 2001:2::1 2001:10::1
2001:20::1 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff 2001:db8::1 2002:: 2002:7f00:1::1
2002:808:808::1 3fff::1 3fff:fff::1 5f00::1 fc00::1 fd00:ec2::254 fdff::1 fe80::1 fe80::1%lo
fe80::1%25lo febf::1 fec0::1 feff::1 ff02::1 2600::5efe:127.0.0.1 2600::200:5efe:10.0.0.1 e000::1
"""
REFUSED = _REFUSED.split()
_PERMITTED = """
1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255
128.0.0.0 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0
192.0.1.0 192.0.3.0 192.88.98.1 192.88.100.1 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0
223.255.255.255 ::ffff:8.8.8.8 2000::1 2001:200::1 2001:4860:4860::8888 2003::1
2606:4700:4700::1111 2a00::1 3ffe::1 3fff:1000::1 2600::5efe:8.8.8.8
"""
PERMITTED = _PERMITTED.split()


@pytest.mark.parametrize("host", REFUSED)
def test_refused(host: str) -> None:
    assert "is not permitted" in (PUBLIC.refusal(host, 443) or "")


@pytest.mark.parametrize("host", PERMITTED)
def test_permitted(host: str) -> None:
    assert PUBLIC.refusal(host, 443) is None


@pytest.mark.parametrize("host", ["", "localhost", "0x7f.1", "127.1", "2130706433", "1.2.3.4\n"])
def test_what_is_no_address_is_refused(host: str) -> None:
    assert "is not an IP address" in (PUBLIC.refusal(host, 443) or "")


@pytest.mark.parametrize("port", [0, 22, 25, 6379, 8080])
def test_a_port_that_is_not_listed_is_refused(port: int) -> None:
    reason = f"port {port} is not permitted: --push-ports of the broker permits 80, 443"
    assert PUBLIC.refusal("8.8.8.8", port) == PUBLIC.port_fault(port) == reason


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://127.0.0.1:21901/", ["--push-ports", "--push-allow"]),
        ("http://localhost:21901/hook", ["--push-ports", "--push-allow"]),
        ("http://[::1]:8080/", ["--push-ports", "--push-allow"]),
        ("http://localhost/", ["--push-allow"]),
        ("http://LOCALHOST/", ["--push-allow"]),
        ("http://10.0.0.1/", ["--push-allow"]),
        ("http://8.8.8.8:8080/", ["--push-ports"]),
        ("http://example.com:8080/", ["--push-ports"]),
        ("http://localhost.example.com/", []),
        ("https://example.com/", []),
    ],
)
def test_a_refusal_names_each_option_that_would_permit_it(url: str, options: list[str]) -> None:
    said = refused_literal(check_url(url), PUBLIC) or ""
    assert [each for each in ("--push-ports", "--push-allow") if each in said] == options


def test_permitted_networks_and_ports_let_a_push_reach_this_machine() -> None:
    rules = AddressRules(parse_networks(["127.0.0.0/8"]), frozenset([8000]))
    for url in ("http://127.0.0.1:8000/", "http://localhost:8000/"):
        assert refused_literal(check_url(url), rules) is None


@given(st.integers(0, 2**32 - 1))
def test_no_ipv4_address_passes_that_the_library_calls_private(number: int) -> None:
    address = IPv4Address(number)
    refused = PUBLIC.refusal(str(address), 443) is not None
    if address.is_private or address.is_multicast or address.is_reserved:
        assert refused
    # A mapped address is its IPv4 address, however it is written.
    mapped = IPv6Address((0xFFFF << 32) + number)
    assert (PUBLIC.refusal(str(mapped), 443) is not None) == refused


@given(st.integers(0, 2**128 - 1))
def test_no_ipv6_address_passes_outside_global_unicast(number: int) -> None:
    address = IPv6Address(number)
    permitted = PUBLIC.refusal(str(address), 443) is None
    if permitted and address.ipv4_mapped is None:
        assert number >> 125 == 1
        assert not address.is_private
        assert not address.is_multicast


@pytest.mark.parametrize(
    ("networks", "permitted", "refused"),
    [
        (
            ["10.1.0.0/16", " fd00:1::/32"],
            ["10.1.2.3", "::ffff:10.1.2.3", "fd00:1::5"],
            ["10.2.0.1", "fd00:2::5"],
        ),
        # A translator reaches public addresses.
        (["64:ff9b::/96", "64:ff9b:1::/48"], ["64:ff9b::8.8.8.8", "64:ff9b:1::8.8.8.8"], []),
    ],
)
def test_an_allow_list_permits_its_networks_and_no_more(
    networks: list[str], permitted: list[str], refused: list[str]
) -> None:
    rules = AddressRules(parse_networks(networks))
    found = [each for each in permitted + refused if rules.refusal(each, 443) is None]
    assert found == permitted


@pytest.mark.parametrize(
    ("prefix", "address"),
    [
        ("64:ff9b::/96", "64:ff9b::169.254.169.254"),
        ("64:ff9b:1::/48", "64:ff9b:1::169.254.169.254"),
        ("64:ff9b:1::/48", "64:ff9b:1:a9fe:a9:fe00::"),
        ("2002::/16", "2002:a9fe:a9fe::1"),
        ("2001::/32", "2001:0:808:808:0:0:5601:5601"),
        ("2001::/32", "2001:0:a9fe:a9fe:0:0:f7f7:f7f7"),
        ("::/96", "::169.254.169.254"),
    ],
)
def test_an_allowed_translator_does_not_permit_what_lies_behind_it(
    prefix: str, address: str
) -> None:
    reason = AddressRules((ip_network(prefix),)).refusal(address, 443)
    assert reason is not None
    assert "embeds one that is not permitted: link-local" in reason


def test_embedded_addresses_of_the_rfcs() -> None:
    # The example of RFC 6052 2.4 for a prefix of 48 bits, and that of Teredo in RFC 4380's form.
    assert IPv4Address("192.0.2.33") in embedded(IPv6Address("64:ff9b:1:c000:2:2100::"))
    assert embedded(IPv6Address("2001:0:4136:e378:8000:63bf:3fff:fdd2")) == [
        IPv4Address("65.54.227.120"),
        IPv4Address("192.0.2.45"),
    ]
    assert embedded(IPv6Address("2606:4700:4700::1111")) == []


@pytest.mark.parametrize("text", ["10.0.0.1/8", "here", "", "10.0.0.0/33"])
def test_a_wrong_network_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no network"):
        parse_networks([text])
