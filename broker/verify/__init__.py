"""Verify: reads a whole data folder and reports damage. First file: `folder`."""

from delaylog.broker.verify.folder import verify_folder
from delaylog.broker.verify.report import Finding, Report

__all__ = ["Finding", "Report", "verify_folder"]
