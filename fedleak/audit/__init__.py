"""What your own set-up gives away: every attack that applies to it, measured, and a report."""

from fedleak.audit.recorded import audit_run
from fedleak.audit.report import Report
from fedleak.audit.run import audit
from fedleak.audit.setup import Setup

__all__ = ["Report", "Setup", "audit", "audit_run"]
