"""`python -m fedleak` is the `fedleak` command."""

from fedleak.cli import app

app(prog_name="fedleak")
