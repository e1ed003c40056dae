"""Record what clients train on, measure whether it is SGD on the mean cross-entropy, and read the records of a run.

Needs the extra ``recordings``.
"""

from fedleak.recording.contribution import Contribution
from fedleak.recording.folder import read, write
from fedleak.recording.recorder import record

__all__ = ["Contribution", "read", "record", "write"]
