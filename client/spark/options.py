"""The options of the format `delaylog`: names, defaults, limits and parsing.

Every error names the option and says what to do. Names are case-insensitive, as everywhere in
Spark, which passes them in lower case. An unknown option is an error; options of Spark itself are
ignored.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pyspark_delaylog.credentials import Credentials, CredentialsError, checked_token
from pyspark_delaylog.endpoints import checked_url, endpoints_from
from pyspark_delaylog.errors import OptionError

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark uses itself and also passes to the source."""

OF_OTHERS: Final = {"retries": "retryForMs"}
"""Names of the same thing in other data sources."""

# The broker's default limits: rows of a bulk body, bytes of a request (with room for Arrow's
# overhead), the horizon of due times, the longest lease.
BATCH_ROWS_MAX: Final = 100_000
BATCH_BYTES_MIN: Final = 1_024
BATCH_BYTES_MAX: Final = 48 * 1024 * 1024
DELAY_MS_MAX: Final = 10 * 366 * 86_400_000
LEASE_MS_MAX: Final = 12 * 3_600_000
CLAIM_ROWS_MAX: Final = 400_000
"""Two claims are open while the next batch is planned, and a group may have 1,000,000 leased
messages.
A claim that leaves no room for the next one could never be acknowledged."""
TXN_TTL_MS_MAX: Final = 86_400_000
WAIT_MS_MAX: Final = 3_600_000
RETRY_FOR_MS_MAX: Final = 86_400_000
PARTITIONS_MAX: Final = 10_000
ROWS_PER_SECOND_MAX: Final = 1_000_000_000

# Clients of HTTP remove `.` and `..` from paths: a load would reach another place.
NAME: Final = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,200}\Z")
"""The name of a topic, namespace or group."""
NAME_FAULT: Final = "is not a valid name; use 1 to 200 of A-Z a-z 0-9 . _ -, but not . or .."
"""What is wrong with another name, to follow it."""
APP_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,160}\Z")
"""The name of a transaction, with room for the numbers of a batch and of a run."""


class Taker:
    """Takes options out of the mapping that Spark passes."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def refuse_unknown(self) -> None:
        """OptionError for unknown options. Names of Spark's own configuration contain dots."""
        known = {name.lower(): name for name in OPTION_NAMES}
        if "path" in self._given:
            raise OptionError(
                "option path: not supported; call .save() or .load() without an argument, "
                "and give the options endpoint and topic"
            )
        for name in self._given:
            if name in known or name in OF_SPARK or "." in name:
                continue
            near = OF_OTHERS.get(name) or next(
                (known[each] for each in difflib.get_close_matches(name, known, 1)), None
            )
            hint = f"did you mean {near}?" if near else "remove it."
            raise OptionError(
                f"option {name}: not known, {hint} The options are {', '.join(OPTION_NAMES)}"
            )

    def text(self, name: str) -> str | None:
        """A text; None if it is absent or empty."""
        return self._given.get(name.lower(), "").strip() or None

    def name(self, name: str) -> str | None:
        """The name of a topic, namespace or group."""
        text = self.text(name)
        if text is not None and not NAME.match(text):
            raise OptionError(f"option {name}: {text!r} {NAME_FAULT}")
        return text

    def flag(self, name: str) -> bool:
        """true or false; false by default."""
        return self.choice(name, ("true", "false"), "false") == "true"

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of the allowed words, case-insensitive."""
        text = self.text(name)
        if text is None:
            return default
        for word in allowed:
            if word.lower() == text.lower():
                return word
        raise OptionError(f"option {name}: {text!r} is not one of {', '.join(allowed)}")

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number between two limits."""
        found = self.perhaps(name, least, most)
        return default if found is None else found

    def perhaps(self, name: str, least: int, most: int) -> int | None:
        """The same, or None if it is absent."""
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise OptionError(
                f"option {name}: {text!r} is not an integer; give one from {least} to {most}"
            )
        number = int(text)
        if not least <= number <= most:
            raise OptionError(f"option {name}: {number} is not between {least} and {most}")
        return number

    def endpoints(self) -> tuple[str, ...]:
        """One or more base URLs. A URL with a password is refused, and not shown in the error."""
        text = self.text("endpoint") or _of_environment()
        if text is None:
            raise OptionError(
                "option endpoint: missing, and the variable DELAYLOG_URL is too; give the broker's "
                "base URL, such as http://127.0.0.1:8711, or several, separated by commas. In SQL "
                "write CREATE TEMPORARY VIEW: Spark does not pass on the OPTIONS of a CREATE TABLE"
            )
        given = [part.strip() for part in text.split(",") if part.strip()]
        found = []
        for url in given:
            if "@" in url:
                raise OptionError(
                    "option endpoint: has a user or password in it; "
                    "give the address alone, and the option tokenFile"
                )
            found.append(_base_url(url))
        if not found:
            raise OptionError("option endpoint: empty; give the broker's base URL")
        return tuple(dict.fromkeys(found))

    def token(self) -> str | None:
        """The token. Errors never show it."""
        text = self.text("token")
        try:
            return None if text is None else checked_token(text, "option token:")
        except CredentialsError as error:
            raise OptionError(str(error)) from None

    def app_id(self) -> str | None:
        """The prefix of transaction names."""
        text = self.text("txnAppId")
        if text is not None and not APP_ID.match(text):
            raise OptionError(
                f"option txnAppId: {text!r} cannot name a transaction; "
                "use 1 to 160 of A-Z a-z 0-9 . _ : -"
            )
        return text

    def compression(self) -> str | None:
        """The codec, or None."""
        found = self.choice("compression", ("none", "lz4", "zstd"), "none")
        return None if found == "none" else found

    def dead_letter(self) -> bool:
        """Whether refused rows go to a dead-letter topic."""
        return self.choice("onError", ("fail", "deadLetter"), "fail") == "deadLetter"

    def dead_letter_topic(self) -> str | None:
        """The topic of rejected rows: given, or derived from the topic."""
        said, topic = self.name("deadLetterTopic"), self.name("topic")
        if said is not None or not self.dead_letter():
            return said
        if topic is None:
            raise OptionError(
                "option deadLetterTopic: missing; onError=deadLetter needs it "
                "if the option topic does not set one topic for all rows"
            )
        found = f"{topic}.rejected"
        if not NAME.match(found):
            raise OptionError(f"option deadLetterTopic: give one, the name {found!r} is too long")
        return found


def _option(name: str, take: Callable[[Taker, str], Any], *, shown: bool = True) -> Any:
    """A field of `Options`, with the name of its option and its parser."""
    return field(repr=shown, metadata={"name": name, "take": take})


def _whole(name: str, default: int, least: int, most: int) -> Any:
    return _option(name, lambda take, name: take.whole(name, default, least, most))


def _perhaps(name: str, least: int, most: int) -> Any:
    return _option(name, lambda take, name: take.perhaps(name, least, most))


def _path(name: str) -> Any:
    return _option(name, lambda take, name: take.text(name))


def _either(name: str, one: str, other: str) -> Any:
    """Whether the option is the first word, which is the default, or the second."""
    return _option(name, lambda take, name: take.choice(name, (one, other), one) == one)


@dataclass(frozen=True, slots=True)
class Options:
    """All options, validated. `repr` omits the token."""

    endpoints: tuple[str, ...] = _option("endpoint", lambda take, _: take.endpoints())
    namespace: str = _option("namespace", lambda take, name: take.name(name) or "default")
    topic: str | None = _option("topic", lambda take, name: take.name(name))
    token: str | None = _option("token", lambda take, _: take.token(), shown=False)
    token_file: str | None = _path("tokenFile")
    ca_file: str | None = _path("caFile")
    client_cert: str | None = _path("clientCert")
    client_key: str | None = _path("clientKey")
    insecure_plain_token: bool = _option("insecurePlainToken", lambda take, name: take.flag(name))
    staged: bool = _either("delivery", "staged", "direct")
    txn_app_id: str | None = _option("txnAppId", lambda take, _: take.app_id())
    txn_ttl_ms: int = _whole("txnTtlMs", 21_600_000, 1_000, TXN_TTL_MS_MAX)
    batch_rows: int = _whole("batchSize", 10_000, 1, BATCH_ROWS_MAX)
    batch_bytes: int = _whole("batchBytes", 8 * 1024 * 1024, BATCH_BYTES_MIN, BATCH_BYTES_MAX)
    compression: str | None = _option("compression", lambda take, _: take.compression())
    retry_for_ms: int = _whole("retryForMs", 300_000, 0, RETRY_FOR_MS_MAX)
    retry_wait_ms: int = _whole("retryWaitMs", 50, 1, WAIT_MS_MAX)
    request_timeout_ms: int = _whole("requestTimeoutMs", 30_000, 1, WAIT_MS_MAX)
    rows_per_second_max: int | None = _perhaps("maxRowsPerSecond", 1, ROWS_PER_SECOND_MAX)
    wait_published: bool = _option(
        "wait",
        lambda take, name: (
            take.choice(name, ("committed", "published"), "committed") == "published"
        ),
    )
    fail_on_partial: bool = _option("failOnPartial", lambda take, name: take.flag(name))
    dead_letter: bool = _option("onError", lambda take, _: take.dead_letter())
    dead_letter_topic: str | None = _option(
        "deadLetterTopic", lambda take, _: take.dead_letter_topic()
    )
    delay_column: str = _option("delayColumn", lambda take, name: take.text(name) or "deliver_at")
    delay_ms: int | None = _perhaps("delayMs", 0, DELAY_MS_MAX)
    group: str | None = _option("consumerGroup", lambda take, name: take.name(name))
    lease_ms: int = _whole("leaseMs", 600_000, 1_000, LEASE_MS_MAX)
    messages_per_trigger_max: int | None = _perhaps("maxMessagesPerTrigger", 1, CLAIM_ROWS_MAX)
    partitions_min: int = _whole("minPartitions", 2, 1, PARTITIONS_MAX)
    redelivers: bool = _either("onExpiredClaim", "redeliver", "fail")
    fail_on_data_loss: bool = _option("failOnDataLoss", lambda take, name: take.flag(name))

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Parse the options of a DataSource. OptionError names the first invalid option."""
        take = Taker(given)
        take.refuse_unknown()
        return cls(
            **{
                each.name: each.metadata["take"](take, each.metadata["name"])
                for each in fields(cls)
            }
        )

    @property
    def waits(self) -> bool:
        """Whether a load waits for its publication: whether it is partial shows only then."""
        return self.wait_published or self.fail_on_partial

    @property
    def connection(self) -> dict[str, str]:
        """The options with which another process reaches the broker, except the token."""
        given = {
            "endpoint": ",".join(self.endpoints),
            "tokenFile": self.token_file,
            "caFile": self.ca_file,
            "clientCert": self.client_cert,
            "clientKey": self.client_key,
            "insecurePlainToken": "true" if self.insecure_plain_token else None,
        }
        return {name: text for name, text in given.items() if text is not None}

    def credentials(self) -> Credentials:
        """The token and TLS files as this process finds them. OptionError if they are wrong."""
        try:
            found = Credentials(
                token=self.token,
                token_file=self.token_file,
                ca_file=self.ca_file,
                client_cert=self.client_cert,
                client_key=self.client_key,
                insecure_plain_token=self.insecure_plain_token,
            )
            for endpoint in self.endpoints:
                found.check(endpoint)
        except CredentialsError as error:
            raise OptionError(f"{error} (see Tokens and TLS in docs/SPARK.md)") from None
        return found


OPTION_NAMES: Final = tuple(each.metadata["name"] for each in fields(Options))


def _of_environment() -> str | None:
    """The endpoint in DELAYLOG_URL, if it names one."""
    try:
        found = endpoints_from(os.environ)
    except ValueError as error:
        raise OptionError(f"option endpoint: missing, and the variable {error}") from None
    if len(found) > 1:
        raise OptionError(
            "option endpoint: missing, and the variable DELAYLOG_URL names several brokers: a load "
            "goes to one of them (see Several brokers in docs/SPARK.md)"
        )
    return found[0] if found else None


def _base_url(url: str) -> str:
    try:
        return checked_url(url)
    except ValueError:
        # A query may hold a token.
        shown = re.sub(r"[?#].*", "?…", url, flags=re.DOTALL)
        raise OptionError(
            f"option endpoint: {shown!r} is not a base URL; give one like http://127.0.0.1:8711 or "
            "delaylogs://HOST:8711"
        ) from None
