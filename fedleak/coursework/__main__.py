"""``python -m fedleak.coursework grade FOLDER``: the command `fedleak grade`."""

from fedleak.cli import app

app(prog_name="python -m fedleak.coursework")
