"""How a command that has been stopped is typed again."""

import shlex
import sys

from xmtc.config.plain import redacted

TEXT_OPTIONS = ("--text", "-t")
"""Options whose value is a document."""


def how_to_continue() -> str:
    """Say what to type again, without credentials; only that it is to be typed again if it holds a document."""
    arguments = sys.argv[1:]
    if any(argument.startswith(TEXT_OPTIONS) for argument in arguments):
        return "run the same command again to continue"
    return f"continue with: {shlex.join(['xmtc', *redacted(arguments)])}"
