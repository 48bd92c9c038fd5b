"""The checker: takes the calls of a history in any order, then checks it message by message.

It is pure (no files, no clock) and imports no other part of the broker, so it can check the history
of any delay queue. The calls of a message are collected under its id and checked once. The whole
takes linear time, except for sorting within one message or one key.
"""

from collections.abc import Iterable

from delaylog.broker.history.deliveries import (
    Duplicates,
    check_completeness,
    check_creations,
    check_duplicates,
)
from delaylog.broker.history.events import FOREVER, EventStore
from delaylog.broker.history.keys import KeyBook
from delaylog.broker.history.life import Context, Life, Marks
from delaylog.broker.history.model import Call, Item, Mark, ScheduleCall
from delaylog.broker.history.report import CheckReport, CheckSettings, Findings
from delaylog.broker.history.schedules import Instants, ScheduleBook
from delaylog.broker.history.sources import Latenesses, check_answers, check_sources, check_unsent

_OUTCOMES = {True: "ok", False: "refused", None: "unknown"}


class HistoryChecker:
    """Add calls and marks with `add` or `extend`, then call `finish` once for the verdict."""

    def __init__(
        self, settings: CheckSettings | None = None, *, instants: Instants | None = None
    ) -> None:
        """`instants` computes the instants of a timing; needed for histories with schedules."""
        self.settings = settings or CheckSettings()
        self._store = EventStore()
        self._marks: list[Mark] = []
        self._schedules = ScheduleBook(instants)
        self._calls: dict[tuple[str, bool | None], int] = {}
        self._first_ms = FOREVER
        self._last_ms = -FOREVER
        self._is_finished = False

    def add(self, item: Item) -> None:
        """Add one call or mark; the order of additions does not matter."""
        self.extend((item,))

    def extend(self, items: Iterable[Item]) -> None:
        """Add many calls and marks."""
        assert not self._is_finished, "the verdict has been given"
        calls, store_call = self._calls, self._store.add
        first_ms, last_ms = self._first_ms, self._last_ms
        for item in items:
            if isinstance(item, Mark):
                self._marks.append(item)
                continue
            outcome = (item.op, item.ok)
            calls[outcome] = calls.get(outcome, 0) + 1
            if item.t0 < first_ms:
                first_ms = item.t0
            if item.t1 > last_ms:
                last_ms = item.t1
            if type(item) is Call:
                store_call(item)
            else:
                assert isinstance(item, ScheduleCall)
                self._schedules.add(item)
        self._first_ms, self._last_ms = first_ms, last_ms

    def finish(self) -> CheckReport:
        """Check all rules on everything that was added, and return the verdict."""
        assert not self._is_finished, "the verdict has been given"
        self._is_finished = True
        settings, store = self.settings, self._store
        findings = Findings(settings.rules)
        marks = Marks(self._marks, slack_ms=settings.slack_ms, settle_ms=settings.bound_ms)
        context = Context(store, marks, settings, findings)
        has_end_mark = marks.end_ms != FOREVER
        report = CheckReport(
            settings,
            items=sum(self._calls.values()) + len(self._marks),
            ids=len(store.events),
            first_ms=self._first_ms if self._calls else 0,
            last_ms=self._last_ms if self._calls else 0,
            marks=dict(sorted(marks.counts.items())),
            has_end_mark=has_end_mark,
        )
        report.end_ms = marks.end_ms if has_end_mark else report.last_ms
        for (op, ok), count in sorted(self._calls.items(), key=repr):
            report.calls.setdefault(op, {})[_OUTCOMES[ok]] = count
        self._judge(context, report)
        report.rules = findings.by_rule
        return report

    def _judge(self, context: Context, report: CheckReport) -> None:
        latenesses, duplicates, keys = Latenesses(), Duplicates(), KeyBook()
        findings, schedules = context.findings, self._schedules
        deliveries = 0
        is_keyed = len(context.store.key_names) > 1
        for name, events in self._store.events.items():
            life = Life(name, events)
            if life.sends:
                check_completeness(life, context, report.end_ms, report.fates)
                if len(life.sends) > 1:
                    check_creations(life, context)
            if life.cancels:
                findings.checked("D", sum(c.is_known for c in life.cancels))
            if life.moves:
                findings.checked("E", sum(m.is_known for m in life.moves))
            is_delivered = False
            for number, group in life.groups.items():
                if not group.deliveries:
                    continue
                is_delivered = True
                deliveries += len(group.deliveries)
                if life.sends:
                    check_sources(life, number, group, context, latenesses)
                if len(group.deliveries) > 1:
                    check_duplicates(life, number, group, context, duplicates)
                if life.cancels or life.moves:
                    check_answers(life, number, group, context)
            if not life.sends and not schedules.add_firing(life, context, latenesses):
                if is_delivered:
                    check_unsent(life, context)
            if is_keyed and is_delivered:
                keys.add(life, context)
        keys.check(context)
        schedules.check(context, report.end_ms)
        findings.checked("C", deliveries)
        findings.checked("J", deliveries)
        findings.checked("I", latenesses.receipt.count + latenesses.disturbed.count)
        report.duplicates = duplicates.by_cause
        report.repeated_span_ms_max = duplicates.repeated_span_ms_max
        report.lateness = {
            "receipt": latenesses.receipt,
            "broker": latenesses.broker,
            "disturbed": latenesses.disturbed,
        }
