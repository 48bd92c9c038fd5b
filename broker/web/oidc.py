"""Recognises tokens (JWT) of an OIDC issuer by its public keys, with joserfc.

The signature is checked by one of the listed algorithms; then issuer, audience and times. The keys
are fetched at the start, every quarter of an hour, and soon after a token names an unknown key.
Verification itself waits for nothing, so a caller is found in the turn of its call.

Claims: https://openid.net/specs/openid-connect-core-1_0.html, RFC 7519; keys: RFC 7517.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from delaylog.broker.calls.access.caller import FOREIGN_MARK, Caller
from delaylog.broker.engine.access.grants import Permissions
from delaylog.broker.host.config import OidcConfig
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.watch.quiet_log import QuietLog
from delaylog.extras import command

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

    from delaylog.broker.host.node import Node

REFRESH_SECONDS: Final = 900.0
AGAIN_SECONDS: Final = 60.0
"""Unknown keys make the node fetch at most this often: anybody can send a token with one."""
FETCH_SECONDS: Final = 10.0
KEYS_BYTES_MAX: Final = 1 << 20
TOKEN_CHARS_MAX: Final = 16_384
SUBJECT_CHARS_MAX: Final = 200
REASON_CHARS_MAX: Final = 200
LEEWAY_SECONDS: Final = 5
"""How far the clocks of issuer and node may differ."""

log = logging.getLogger("delaylog.oidc")


class OidcIssuer:
    """The issuer of one node's configuration. All methods belong to the loop's thread."""

    def __init__(self, config: OidcConfig, node: Node) -> None:
        """Raises ConfigError if joserfc is not installed."""
        try:
            import joserfc  # noqa: F401
        except ImportError:
            raise ConfigError(f"oidc needs joserfc: {command('oidc')}") from None
        self._config = config
        self._machine = node.machine
        self._quiet = QuietLog(log, node.machine.steady_s)
        self._keys: KeySet | None = None
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fetch the keys now and in the background. Without keys no token is accepted."""
        await self._fetch()
        self._task = asyncio.get_running_loop().create_task(self._refresh())

    def stop(self) -> None:
        """Stop fetching keys."""
        if self._task is not None:
            self._task.cancel()

    def caller(self, token: str) -> Caller | None:
        """The caller of a token; None if it is not a valid token of this issuer."""
        if token.count(".") != 2 or len(token) > TOKEN_CHARS_MAX or self._keys is None:
            return None
        claims = self._claims(token)
        if claims is None:
            return None
        subject, config = claims["sub"], self._config
        if not subject.isprintable() or len(subject) > SUBJECT_CHARS_MAX:
            return None
        values = claims.get(config.claim)
        values = [values] if isinstance(values, str) else values
        grants = [
            grant
            for value in (values if isinstance(values, list) else ())
            if isinstance(value, str)
            for grant in config.roles.get(value, ())
        ]
        return Caller(
            f"oidc{FOREIGN_MARK}{subject}",
            Permissions(grants),
            expires_ms=(claims["exp"] + LEEWAY_SECONDS) * 1000,
        )

    def _claims(self, token: str) -> dict[str, Any] | None:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError
        from joserfc.jwt import JWTClaimsRegistry

        config = self._config
        rules = JWTClaimsRegistry(
            now=int(self._machine.wall_s()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": config.issuer},
            aud={"essential": True, "value": config.audience},
            sub={"essential": True},
            exp={"essential": True},
        )
        assert self._keys is not None, "`caller` has checked it"
        try:
            decoded = jwt.decode(token, self._keys, algorithms=list(config.algorithms))
            rules.validate(decoded.claims)
            claims = dict(decoded.claims)
            claims["exp"] = int(claims["exp"])
        except (JoseError, ValueError, TypeError, OverflowError) as error:
            if isinstance(error, InvalidKeyIdError):
                self._wanted.set()
            # Whoever sent the token is told nothing of it, but the operator has to find out why.
            reason = str(error)[:REASON_CHARS_MAX]
            self._quiet.tell("refused", "a token for the OIDC issuer is refused: %a", reason)
            return None
        return claims if isinstance(claims["sub"], str) else None

    # ------------------------------------------------------------------ keys

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            try:
                async with asyncio.timeout(REFRESH_SECONDS - AGAIN_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            await self._fetch()

    async def _fetch(self) -> None:
        """Replace the keys. After a failure the current ones stay."""
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        source = self._config.keys
        try:
            if source.startswith(("https://", "http://")):
                raw = await _download(source)
            else:
                raw = await self._machine.in_thread(Path(source).read_bytes)
            self._keys = KeySet.import_key_set(orjson.loads(raw))
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError, JoseError) as error:
            log.warning("the keys of the OIDC issuer cannot be read: %s", error)


async def _download(url: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"{url} answered with status {answer.status}")
        body = bytearray()
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > KEYS_BYTES_MAX:
                raise ValueError(f"{url} has more than {KEYS_BYTES_MAX} bytes")
        return bytes(body)
