"""Addresses: the forms that are taken, what is said of others, and the variable with addresses."""

from __future__ import annotations

import pytest

from delaylog.client import PlainClient
from delaylog.client.shards.sharding import Shard
from delaylog.client.wire.endpoints import checked_url, default_endpoints, endpoints_from


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://a:1/", "http://a:1"),
        ("https://a", "https://a"),
        ("https://a/proxy/", "https://a/proxy"),
        ("delaylog://a", "http://a:8711"),
        ("delaylog://a:/", "http://a:8711"),
        ("delaylog://a:1/x/", "http://a:1/x"),
        ("delaylogs://[::1]", "https://[::1]:8711"),
        ("DELAYLOGS://[::1]:1", "https://[::1]:1"),
    ],
)
def test_forms_of_addresses(given: str, url: str) -> None:
    assert checked_url(given) == url


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "has no scheme"),
        ("localhost:8711", "'localhost:8711' has no scheme; .* such as http://127.0.0.1:8711"),
        ("redis://a", "has the scheme 'redis'"),
        ("delaylog://", "no valid host and port"),
        ("http://", "no valid host and port"),
        ("http://a:x", "no valid host and port"),
        ("http://a:0", "no valid host and port"),
        ("http://[", "no valid host and port"),
        ("http://a/v1/", "ends before /v1"),
        ("http://a b", "without spaces"),
        ("http://é", "printable ASCII"),
        ("http://a?token=secret", "no query and no fragment; 'http://a' is followed by one"),
        ("http://a/v1/#secret", "'http://a/v1/' is followed by one"),
        ("a?secret@", "no user or password"),
        ("a?secret", "'a' is followed by one"),
        ("http://u:secret@a", "no user or password"),  # pragma: allowlist secret
    ],
)
def test_what_is_wrong_with_an_address_is_named(given: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        checked_url(given)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("more", ["", ",http://b", " http://b", "\nhttp://b"])
def test_no_part_of_a_query_is_shown(more: str) -> None:
    """Also where a comma or a space in it looks like the end of the address."""
    for mark in "?#":
        given = f"http://a{mark}token=x,secret secret"
        with pytest.raises(ValueError, match="give the address alone") as caught:
            Shard.of(given + more)
        assert "secret" not in str(caught.value)
        with pytest.raises(ValueError, match=r"DELAYLOG_URL: .* give the address alone") as caught:
            endpoints_from({"DELAYLOG_URL": given + more})
        assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="give the address alone") as caught:
        PlainClient("http://a", members=["http://b?token=secret"])
    assert "secret" not in str(caught.value)


def test_the_variable_has_shards_and_clusters() -> None:
    """Spaces separate shards, commas the nodes of one; an error names the variable."""
    several = {"DELAYLOG_URL": " http://a:1 , http://b:1\tdelaylog://c\n"}
    assert endpoints_from(several) == ("http://a:1,http://b:1", "http://c:8711")
    assert default_endpoints(several) == endpoints_from(several)
    for nothing in ({}, {"DELAYLOG_URL": " "}):
        assert endpoints_from(nothing) == ()
        assert default_endpoints(nothing) == ("http://127.0.0.1:8711",)
    with pytest.raises(ValueError, match="DELAYLOG_URL: the address 'b' has no scheme"):
        endpoints_from({"DELAYLOG_URL": "http://a,b"})
    with pytest.raises(ValueError, match=r"DELAYLOG_URL: .* no user or password"):
        endpoints_from({"DELAYLOG_URL": "http://u:p@a"})
