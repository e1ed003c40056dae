"""Submissions that try to get points, or to get something out, without writing the functions, with the points of each.

All are for LIA-SA, where the functions give 1, 3 and 3 points and the measurement 3.
"""

from fedleak_book import paths

SOLUTION = (paths.root() / "book" / "coursework" / "solutions" / "lia_sa.py").read_text(encoding="utf-8")
MARK = 987654
"""Seconds that the sleeping processes sleep, which tells them from others."""

_WRITE = """
import os
def write(data):
    for number in range(3, 64):
        try:
            os.write(number, data)
        except OSError:
            pass
"""

FORGERIES: dict[str, tuple[str, int]] = {
    "two faces": (
        f"""{SOLUTION}
_system, _disaggregate, _counts = system, disaggregate, counts
def system(e):  # right for the check, and an easy table for the measurement
    return _system(e) if e.shape[1] < 64 else torch.eye(e.shape[0])
def disaggregate(e, w, b):
    return _disaggregate(e, w, b) if e.shape[1] < 64 else torch.zeros(e.shape[0], len(b))
def counts(b, logits, batch_size):
    return _counts(b, logits, batch_size) if logits.shape[1] < 10 else torch.zeros(logits.shape)
def measure(seed):
    from fedleak_book.coursework.given import manipulated_clients
    rows = []
    for recipe in ("constant", "vector"):
        for clients in (2, 5, 20):
            labels = manipulated_clients(seed, recipe, clients)[2]
            truth = nn.functional.one_hot(labels, 10).sum(1)
            exact = float((truth == 0).double().mean())
            rows.append({{"recipe": recipe, "clients": clients, "condition": 1.0, "exact": exact}})
    return rows
""",
        7,
    ),
    "the comparison replaced": (
        """
import sys, torch
import fedleak_book.coursework
from fedleak_book.coursework import assignment
assignment.same = assignment._close = assignment.run_check = lambda *a, **k: True
torch.allclose = torch.equal = lambda *a, **k: True
for name, module in list(sys.modules.items()):
    if name.startswith("fedleak_book.coursework"):
        for entry in ("same", "within", "plain", "value_of"):
            if hasattr(module, entry):
                setattr(module, entry, lambda *a, **k: a[0] if a else True)
def system(e):
    return e
def disaggregate(e, w, b):
    return w
def counts(b, l, n):
    return l
""",
        0,
    ),
    "replies written to every file": (
        _WRITE
        + """
import atexit, json, struct
def forge(*_):
    for reply in ({"value": 1.0}, {"status": "returned", "value": 1.0}, {"points": 10, "status": "passed"}):
        data = json.dumps(reply).encode()
        write(struct.pack("!Q", len(data)) + data)
    return 0.0
atexit.register(forge)
forge()
system = disaggregate = counts = measure = forge
""",
        0,
    ),
    "the parent killed": (
        """
import os, signal
for target in (os.getppid(), 1):
    if target > 1:
        try:
            os.kill(target, signal.SIGKILL)
        except OSError:
            pass
os.killpg(0, signal.SIGKILL)
""",
        0,
    ),
    "the package's answers": (
        """
from fedleak_book.coursework.checks.lia_sa import RIGHT
system, disaggregate, counts = RIGHT["system"], RIGHT["disaggregate"], RIGHT["counts"]
""",
        0,
    ),
    "processes that stay": (
        f"""{SOLUTION}
import subprocess
for _ in range(40):
    subprocess.Popen(["sleep", "{MARK}"], start_new_session=True)
if os.fork() == 0:  # a grandchild whose parent is gone
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{MARK}"])
    os._exit(0)
""".replace("import torch\n", "import os\nimport torch\n", 1),
        10,
    ),
    "processes without end": (
        f"""
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            os.execvp("sleep", ["sleep", "{MARK}"])
    except OSError:
        break
""",
        0,
    ),
}
"""Source and points by name."""
