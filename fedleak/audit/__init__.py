"""Audit the leakage of your own set-up: measure every attack that applies, and report.

Needs the extra ``audit``.
"""

from fedleak.errors import extra, require

with extra("audit"):  # some of these are imported late, after an audit that may take an hour
    require("jinja2", "markdown_it", "matplotlib", "pandas", "tqdm")

from fedleak.audit.recorded import audit_run
from fedleak.audit.report import Report
from fedleak.audit.run import audit
from fedleak.audit.setup import Setup

__all__ = ["Report", "Setup", "audit", "audit_run"]
