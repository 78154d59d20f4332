"""Errors a user can act on. The command line prints their message alone, without a traceback, and exits with 1."""


class XmtcError(Exception):
    """Base of every error that is the user's to mend: names the place, the value and the fix."""


class ConfigError(XmtcError):
    """A configuration file, key or override is wrong, or does not fit this machine."""


class DataError(XmtcError):
    """A source file, row, label or corpus is wrong."""


class CheckpointError(XmtcError):
    """A checkpoint or exported model is missing, damaged or of another run."""


class StorageError(XmtcError):
    """A file system cannot be reached, refuses, or holds something damaged."""


class TrainingError(XmtcError):
    """Training cannot go on: a loss that is not finite, a rank that hangs, a full disk."""
