#!/usr/bin/env bash
# Version:  typer 0.20.1 with click 8.5.1 (both are what pip installs beside each other), rich 15.0.0
# Expected: --help shows the help text of an argument, typer.Argument(help=...), like that of an option.
# Seen:     the panel "Arguments" has name and type, without the text; options keep theirs.
#           With click 8.3.0 the text is there.
# Hurts:    who documents a command's arguments by help=: users of the command never see the words. No error, no warning.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check typer==0.20.1 click==8.5.1 rich==15.0.0
cat > command.py <<'END'
import typer

app = typer.Typer()


@app.command()
def main(name: str = typer.Argument(help="Words of the argument."), n: int = typer.Option(3, help="Words of the option.")):
    pass


app()
END
env/bin/python command.py --help | tee help.txt
grep -q "Words of the option" help.txt
if grep -q "Words of the argument" help.txt; then echo "changed: the argument's help is shown"; exit 1; fi
