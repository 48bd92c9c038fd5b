"""Redis clients with a token of an OIDC issuer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from joserfc.jwk import KeySet

from tests.broker.resp.conftest import RespBroker
from tests.broker.resp.resp_client import is_closed, is_error
from tests.broker.web.test_oidc import KEY, TABLE, token


def test_an_expired_token_ends_the_connection(
    start_broker: Callable[..., RespBroker], tmp_path: Path
) -> None:
    """Although the table of principals does not change."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    config = tmp_path / "delaylog.toml"
    config.write_text(TABLE.replace("KEYS", str(keys)))
    broker = start_broker("--config", str(config))
    client = broker.connect()
    # The clocks of issuer and broker may differ by five seconds.
    assert client.call("AUTH", token(exp=int(time.time()) + 1)) == b"OK"
    assert isinstance(client.call("DL.SEND", "orders.new", 0, "x"), bytes)
    assert is_error(client.call("DL.SEND", "other", 0, "x"), "NOPERM")
    assert is_closed(client)
