"""Errors that a user can fix, and interruptions. The command line prints only their message, without a traceback.

It exits with 1 after an error.
"""


class XmtcError(Exception):
    """Base class for errors the user can fix. The message names the place, the value and the fix."""


class ConfigError(XmtcError):
    """A configuration file, key or override is wrong, or does not fit this machine."""


class DataError(XmtcError):
    """A source file, row, label or corpus is wrong."""


class CheckpointError(XmtcError):
    """A checkpoint or exported model is missing, damaged or belongs to another run."""


class StorageError(XmtcError):
    """A file system is unreachable, refuses access, or holds something damaged."""


class TrainingError(XmtcError):
    """Training cannot continue: a loss that is not finite, a rank that hangs, a full disk."""


class Interrupted(KeyboardInterrupt):
    """A signal has stopped the work, which the same command continues.

    Attributes:
        number: of the signal; the command exits with 128 more.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number

    def __reduce__(self) -> tuple[type["Interrupted"], tuple[str, int]]:
        """Pickle with both arguments."""
        return type(self), (str(self), self.number)
