"""Verify: read a whole data folder and say what in it is not as it was written."""

from delaylog.broker.verify.folder import verify_folder
from delaylog.broker.verify.report import Finding, Report

__all__ = ["Finding", "Report", "verify_folder"]
