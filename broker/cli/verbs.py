"""The table of verbs: their names, subjects, a line of help, and the modules that implement them.

The module of a verb has `NAME_arguments(parser)` and `NAME_command(args)`, or for several verbs
`arguments(verb, parser)` and `command(verb, args)`. It is imported only when the verb runs, so
`serve` starts without the client's code, and `--help` with almost none. Leaves declare their own.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.process.leaves import Verb, leaves

GROUPS: Final = (
    "messages",
    "topics",
    "a broker",
    "a cluster",
    "access",
    "data folders",
    "programs",
)
"""The subjects, in the order of the help."""


_CORE: Final = (
    Verb("send", "messages", "messages.sends", "send a message, or one per line of input"),
    Verb("receive", "messages", "messages.leases", "lease messages and print them"),
    Verb("peek", "messages", "messages.leases", "print ready messages without leasing them"),
    Verb("ack", "messages", "messages.leases", "acknowledge messages, which ends them"),
    Verb("nack", "messages", "messages.leases", "return messages, to be delivered again"),
    Verb("reject", "messages", "messages.leases", "make messages dead letters at once"),
    Verb("extend", "messages", "messages.leases", "extend the leases of messages"),
    Verb("list", "messages", "messages.lists", "list messages in due order"),
    Verb("show", "messages", "messages.lists", "show a message with all its members"),
    Verb("dead", "messages", "messages.lists", "list dead messages with their causes"),
    Verb("cancel", "messages", "messages.changes", "cancel messages, by id or by filter"),
    Verb("reschedule", "messages", "messages.changes", "change due times, by id or by filter"),
    Verb("replay", "messages", "messages.changes", "make dead messages deliverable again"),
    Verb("jobs", "messages", "call_verbs", "list the jobs that filters have made"),
    Verb("job", "messages", "call_verbs", "show or stop a job"),
    Verb("topics", "topics", "topics", "list the topics and some of their settings"),
    Verb("topic", "topics", "topics", "show, set or drop a topic"),
    Verb("stats", "topics", "topics", "show counts of a topic, or of all topics"),
    Verb("forecast", "topics", "topics", "show how many messages become due, and when"),
    Verb("tail", "topics", "watching.tail", "print what is handed out, without leasing it"),
    Verb("groups", "topics", "call_verbs", "list, show, make or drop consumer groups"),
    Verb("target", "topics", "call_verbs", "show, set, change or drop the push target of a group"),
    Verb("schedule", "topics", "schedules", "put, show, preview or pause schedules"),
    Verb("purge", "topics", "call_verbs", "end all waiting and ready messages of a topic"),
    Verb("pause", "topics", "call_verbs", "stop deliveries of a topic; sends and settles go on"),
    Verb(
        "resume", "topics", "call_verbs", "start deliveries of a topic, or of a held broker, again"
    ),
    Verb("claims", "topics", "call_verbs", "list, show, extend, acknowledge or release claims"),
    Verb("serve", "a broker", "settings", "run a broker", calls=False),
    Verb("config", "a broker", "settings", "show the settings and their sources", calls=False),
    Verb("doctor", "a broker", "doctor.verb", "say what a broker lacks", calls=False),
    Verb("top", "a broker", "watching.top", "show rates and lateness of topics, live"),
    Verb(
        "clock", "a broker", "call_verbs", "show the broker's clock, or accept that it was set back"
    ),
    Verb("hold", "a broker", "call_verbs", "deliver, push and fire nothing until resumed"),
    Verb("reload", "a broker", "call_verbs", "have the broker read its certificates again"),
    Verb("transactions", "a broker", "call_verbs", "list, show or abort transactions"),
    Verb("archive", "a broker", "call_verbs", "show which ended hours wait, or release them"),
    Verb("cluster", "a cluster", "clusters", "show a cluster, hand over, change its members"),
    Verb("init", "access", "access", "make the first administrator's token", calls=False),
    Verb("token", "access", "access", "create, show, rotate and revoke tokens"),
    Verb("verify", "data folders", "folders", "check a data folder for damage", calls=False),
    Verb("backup", "data folders", "folders", "copy a data folder", calls=False),
    Verb("restore", "data folders", "folders", "make a data folder from a backup", calls=False),
    Verb("dump", "data folders", "dump", "print a file as JSON lines", calls=False),
    Verb("worker", "programs", "programs", "run the consumers of a program", calls=False),
    Verb("spark", "programs", "programs", "run a job on Apache Spark", calls=False, parses=False),
    Verb("completion", "programs", "completion", "print a script for a shell", calls=False),
)
_ALL: Final = (*_CORE, *(verb for leaf in leaves() for verb in leaf.verbs))
VERBS: Final = {verb.name: verb for verb in sorted(_ALL, key=lambda verb: GROUPS.index(verb.group))}
"""By name, in the order of the help."""
