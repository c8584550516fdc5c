"""`python -m burnish`, and the program `burnish`: the command line."""

import sys


def run() -> None:
    """The command line; Ctrl-C while it is imported is no traceback either."""
    try:
        from burnish.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main(prog_name="burnish")


if __name__ == "__main__":
    run()
