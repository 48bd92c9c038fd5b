"""URLs of targets: what is refused and why, and the form in which the rest is stored."""

from __future__ import annotations

import pytest

from delaylog.broker.rules.push_addresses import check_url
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
