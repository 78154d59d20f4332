"""Errors that a user can fix. The command line prints only their message, without a traceback, and exits with 1."""


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
