"""Changes a principal by the words of ACL SETUSER.

`broker/keyspace/access` parses the words for commands, keys and channels. This module parses those
for passwords, and refuses those that do not apply to principals. Errors do not show passwords or
their digests.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from delaylog.broker.engine.access.principals import SECRETS_MAX, Principal, Secret
from delaylog.broker.engine.access.token_form import digest_of
from delaylog.broker.keyspace.access.rights import check_rules
from delaylog.broker.keyspace.access.rules import NO_RULES, RuleError, parse_rules
from delaylog.broker.keyspace.access.users import DEFAULT
from delaylog.broker.keyspace.errors import CommandError

PASSWORD_BYTES_MIN: Final = 16
"""Only a fast digest of a password is stored, so a short one could be guessed from it."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_REFUSED: Final = {
    "nopass": "every user has a password: set one with >PASSWORD",
    "off": "a user cannot be switched off: remove its passwords with resetpass, or the user",
    "skip-sanitize-payload": "payloads of RESTORE are always checked",
}
_IGNORED: Final = ("on", "clearselectors", "sanitize-payload")
_OF_SECRETS: Final = (">", "#", "<", "!")
"""First characters of words that add or remove a password or its digest."""


def changed_by(name: bytes, old: Principal | None, words: list[bytes], now_ms: int) -> Principal:
    """The principal after these words; `old` = before them, if it exists. Raises CommandError."""
    if name == DEFAULT:
        raise CommandError(
            b"ERR 'default' is the user of clients that have not authenticated: choose another name"
        )
    principal = old or Principal(_text(name), (), created_ms=now_ms)
    rules, secrets = parse_rules(principal.redis) if old else NO_RULES, list(principal.secrets)
    for word in map(_text, words):
        lower = word.lower()
        try:
            if lower in _REFUSED:
                raise RuleError(word, _REFUSED[lower])
            if lower in _IGNORED:
                continue
            if lower in ("reset", "resetpass"):
                secrets = []
                rules = NO_RULES if lower == "reset" else rules
            elif word[:1] in _OF_SECRETS:
                _change_secrets(secrets, word, now_ms)
            else:
                rules = rules.with_word(word)
                check_rules(rules.words)
        except RuleError as error:
            shown = word[:1] + "(secret)" if word[:1] in _OF_SECRETS else word[:100]
            text = f"ERR Error in ACL SETUSER modifier '{shown}': {error.why}"
            raise CommandError(text.encode()) from None
    return replace(principal, redis=rules.words, secrets=tuple(secrets))


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise CommandError(b"ERR names, passwords and patterns of users are UTF-8 text") from None


def _change_secrets(secrets: list[Secret], word: str, now_ms: int) -> None:
    """Add or remove a password. Raises RuleError."""
    kind, text = word[0], word[1:]
    if kind in "#!":
        if not _DIGEST.match(text):
            raise RuleError(
                word,
                "The password hash must be exactly 64 characters and contain only lowercase "
                "hexadecimal characters",
            )
        digest = bytes.fromhex(text)
    else:
        digest = digest_of(text)
    known = next((secret for secret in secrets if secret.digest == digest), None)
    if kind in "<!":
        if known is None:
            raise RuleError(
                word, "The password you are trying to remove from the user does not exist"
            )
        secrets.remove(known)
    elif known is None:
        if kind == ">" and len(text.encode()) < PASSWORD_BYTES_MIN:
            raise RuleError(word, f"a password has at least {PASSWORD_BYTES_MIN} bytes")
        if len(secrets) >= SECRETS_MAX:
            raise RuleError(
                word, f"a user has at most {SECRETS_MAX} passwords: remove one first with resetpass"
            )
        secrets.append(Secret(digest, now_ms))
