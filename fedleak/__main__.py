"""`python -m fedleak` is the `fedleak` command."""

import sys

from fedleak.errors import MissingExtra, extra


def main() -> None:
    """Run the command; without the packages of the extra ``audit``, print how to install them and exit with 2."""
    try:
        with extra("audit"):
            from fedleak.cli import app
    except MissingExtra as error:
        print(f"fedleak: {error}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="fedleak")


if __name__ == "__main__":
    main()
