"""What a word that does not exist probably means: the words that people try first, then spelling.

The tables have words of other tools and of everyday speech. A word that means the same as a verb
or an option may be spelled nothing like it: `--in` is `--delay`, not `--insecure-plain-token`.
Options that waive a protection are never suggested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

_WAIVERS: Final = "--insecure"
_VERBS: Final = {
    "send": "publish push enqueue put add produce create",
    "receive": "consume pop poll fetch pull reserve lease dequeue",
    "ack": "acknowledge done complete commit finish",
    "nack": "fail unack",
    "reject": "bury kill",
    "extend": "touch heartbeat renew",
    "list": "ls pending scheduled messages browse search find",
    "show": "get info inspect describe view history life",
    "dead": "dlq dead-letter dead-letters deadletter deadletters failed",
    "cancel": "delete remove rm del unschedule revoke",
    "reschedule": "move postpone snooze delay update edit change defer",
    "replay": "retry requeue redrive revive resurrect",
    "topics": "queues",
    "topic": "queue",
    "groups": "group consumers",
    "target": "targets webhook webhooks",
    "schedule": "schedules cron crontab recurring every",
    "doctor": "ping health diagnose",
    "stats": "status count counts metrics",
    "config": "settings configure configuration options env",
    "purge": "clear empty flush truncate",
    "resume": "unpause continue release unhold",
    "pause": "suspend",
    "hold": "freeze quiet",
    "serve": "start run server broker up",
    "worker": "workers work",
    "token": "tokens user users login auth",
    "--help": "help usage man",
    "--version": "version",
}
_OPTIONS: Final = {
    "--delay": "--in --countdown --after --defer --sleep",
    "--at": "--when --time --on --due --due-at --eta --schedule --deliver-at",
    "--due-from": "--from --since --after --start",
    "--due-to": "--to --until --before --end",
    "--max": "--limit --count -n --n --number --size --batch",
    "--wait": "--timeout --block",
    "--lease": "--visibility --visibility-timeout --ttr --extend --for",
    "--ttl": "--expire --expiry --expires",
    "--max-retry": "--retries --retry --max-retries --attempts --max-attempts",
    "--id": "--name --message-id --msg-id",
    "--tag": "--tags --label --labels",
    "--state": "--status",
    "--group": "--consumer-group",
    "--reason": "--why --error --message --comment",
    "--ack": "--auto-ack --autoack",
    "--follow": "--watch --tail --loop -f",
    "--force": "--yes -y -f",
    "--life": "--history --trace",
    "--interval": "--every --period --each",
    "--hours": "--days",
    "--bodies": "--body --payload --payloads",
    "--url": "--host --server --broker --address --endpoint --port -u",
    "--json": "--format --output -o",
    "--namespace": "--ns",
    "--merge": "--replace --overwrite --upsert",
    "--http": "--listen --bind --host --port",
    "--data-dir": "--data --dir --folder --path",
}
_ACTIONS: Final = {
    "list": "ls all",
    "show": "get info describe inspect view",
    "set": "create add make new put update change configure edit",
    "put": "create add make new set",
    "make": "create add new put",
    "create": "add make new put",
    "change": "update edit set modify",
    "drop": "delete remove rm del destroy",
    "revoke": "delete remove rm del drop",
    "stop": "cancel abort kill",
    "abort": "cancel rollback stop",
    "release": "drop cancel free",
    "preview": "next upcoming",
    "try": "test check validate",
    "pause": "suspend disable stop",
    "resume": "unpause enable start continue",
    "run": "trigger fire now",
    "status": "show info get",
    "broker": "check run",
}
"""The words for each name, between spaces. A word may be at several: the verb has one of them."""
_LISTS: Final = {"topic": "topics", "job": "jobs"}
"""Verbs whose things are listed by another verb."""


def verb_meant(word: str, verbs: Iterable[str]) -> str | None:
    """The verb, or the option of `delaylog` itself, that a word means."""
    return _meant(word.lower(), _VERBS, [*verbs, "--help", "--version"])


def option_meant(word: str, options: Iterable[str]) -> str | None:
    """The option of a verb that a word means."""
    return _meant(word, _OPTIONS, [each for each in options if not each.startswith(_WAIVERS)])


def command_meant(verb: str, action: str, actions: Collection[str]) -> str | None:
    """The verb and action that are meant by an action that the verb does not have.

    `actions`: those that it has.
    """
    if verb in _LISTS and _meant(action, _ACTIONS, ["list"]) == "list":
        return _LISTS[verb]
    near = _meant(action, _ACTIONS, actions)
    return near and f"{verb} {near}"


def action_of(verb: str, word: str) -> str | None:
    """What is meant by an action of a verb that has none, such as `topics list`; None if the word
    is no action of any verb.
    """
    if word not in {*_ACTIONS, *" ".join(_ACTIONS.values()).split()}:
        return None
    one = {name: each for each, name in _LISTS.items()}.get(verb)
    if one is None or _meant(word, _ACTIONS, ["list"]) == "list":
        return verb
    return f"{one} --help"


def _meant(word: str, table: Mapping[str, str], known: Collection[str]) -> str | None:
    for name, words in table.items():
        if name in known and word in words.split():
            return name
    return _nearest(word, known)


def _nearest(word: str, known: Collection[str]) -> str | None:
    """The known name that a word is the beginning of, or is spelled almost like."""
    from difflib import get_close_matches

    starts = [each for each in known if each.startswith(word)]
    return next(iter(starts or get_close_matches(word, known, 1, cutoff=0.7)), None)
