"""The public names of `delaylog.broker.history`."""

from delaylog.broker.history.checker import HistoryChecker
from delaylog.broker.history.command import check_files, run_check
from delaylog.broker.history.model import Call, HistoryError, Mark, parse_line, read_items
from delaylog.broker.history.recorder import (
    HistoryRecorder,
    body_hash,
    open_history,
)
from delaylog.broker.history.report import (
    RULES,
    CheckReport,
    CheckSettings,
    Violation,
    parse_rules,
    report_json,
    report_object,
    report_text,
)

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
