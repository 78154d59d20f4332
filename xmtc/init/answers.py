"""What a user says of data that `init` would otherwise infer. Importing it imports no library that reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from xmtc.data.config import Task
from xmtc.errors import ConfigError

OF_SOURCE = "data.source."
"""How the keys of the source begin."""
_BY_OPTIONS = {
    "files": "give the path, and --add for more files",
    "directory": "give the path",
    "columns": "give --text, --labels, --id, --split-column, --label-separator or --accept",
    "labels": "put a file of labels, such as labels.csv, beside the documents",
}
"""Keys of the source that are given in other ways."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The user's options about the data. Default: inferred from the columns' content.

    Attributes:
        text, labels, id, split_column: columns.
        label_separator: separator of labels in a cell; if empty, a cell is one label.
        accept: `COLUMN=VALUE,VALUE`: documents with other values are left out; `all` if no column says so.
        task: whether a document has one label or any number.
        add: more files of training documents.
        overrides: settings of the source that its files do not tell, such as `data.source.quoting=none`.
    """

    text: Sequence[str] = ()
    labels: str | None = None
    id: str | None = None
    split_column: str | None = None
    label_separator: str | None = None
    accept: str | None = None
    task: Task | None = None
    add: Sequence[str] = ()
    overrides: Sequence[str] = ()

    def columns(self) -> list[str]:
        """List the columns that the user names."""
        columns = (*self.text, self.labels, self.id, self.split_column)
        return [column for column in columns if column is not None]

    def options(self) -> list[str]:
        """List the options of the command that say what is in the columns."""
        values = {
            "--text": self.text or None,
            "--labels": self.labels,
            "--label-separator": self.label_separator,
            "--accept": self.accept,
            "--id": self.id,
            "--split-column": self.split_column,
            "--task": self.task,
        }
        return [option for option, value in values.items() if value is not None]


NO_ANSWERS = Answers()
"""Everything is inferred."""


def settings_of_source(overrides: Sequence[str]) -> dict[str, str]:
    """Return what overrides say of the source, by its key, as it is written.

    Raises:
        ConfigError: one says something else, or what other options say.
    """
    settings: dict[str, str] = {}
    for override in overrides:
        key = _key_of(override)
        if key is None:
            raise ConfigError(
                f"{override}: xmtc init takes {OF_SOURCE}KEY=VALUE, such as {OF_SOURCE}quoting=none; write other keys "
                "into the configuration, or give them to xmtc train"
            )
        if key in _BY_OPTIONS:
            raise ConfigError(f"{override}: {_BY_OPTIONS[key]} instead")
        settings[key] = override.partition("=")[2].strip()
    return settings


def name_in(overrides: Sequence[str]) -> str | None:
    """Return the name that overrides give the run; None if they give none."""
    names = [
        value.strip()
        for key, _, value in (override.partition("=") for override in overrides)
        if key.strip() == "name"
    ]
    return names[-1] if names else None


def is_for_init(override: str) -> bool:
    """Whether `init` has to know an override: it says how the files are written."""
    key = _key_of(override)
    return key is not None and key not in _BY_OPTIONS


def _key_of(override: str) -> str | None:
    """Return the key of the source that an override sets; None if it sets none."""
    name, equals, _ = override.partition("=")
    key = name.strip().removeprefix(OF_SOURCE)
    is_of_source = (
        name.strip().startswith(OF_SOURCE) and key.split(".")[0].isidentifier()
    )
    return key.split(".")[0] if equals and is_of_source else None
