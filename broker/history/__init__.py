"""The public history checker: record what clients saw of a delay queue, and judge it later.

It stands alone: nothing here imports any other part of delaylog, so any queue can be checked. The
format and the rules are told in docs/HISTORY.md.
"""

from delaylog.broker.history.checker import HistoryChecker
from delaylog.broker.history.command import check_files, run_check
from delaylog.broker.history.findings import (
    RULES,
    CheckReport,
    CheckSettings,
    Violation,
    parse_rules,
)
from delaylog.broker.history.model import Call, HistoryError, Mark, parse_line, read_items
from delaylog.broker.history.recorder import (
    HistoryRecorder,
    body_hash,
    open_history,
)
from delaylog.broker.history.report import report_json, report_object, report_text

__all__ = [
    "RULES",
    "Call",
    "CheckReport",
    "CheckSettings",
    "HistoryChecker",
    "HistoryError",
    "HistoryRecorder",
    "Mark",
    "Violation",
    "body_hash",
    "check_files",
    "open_history",
    "parse_line",
    "parse_rules",
    "read_items",
    "report_json",
    "report_object",
    "report_text",
    "run_check",
]
