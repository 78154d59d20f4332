"""Inspect data and machine, and choose the best recipe that fits the budget."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from xmtc.config.shape import adapter
from xmtc.data.config import DataConfig
from xmtc.data.pretrained import (
    DEFAULT_BACKBONE,
    MULTILINGUAL,
    is_there,
    others_than_english,
)
from xmtc.data.readers.base import quoted_label
from xmtc.data.readers.exports.base import REJECTED
from xmtc.data.tokenizer import load_pretrained, special_tokens
from xmtc.errors import DataError
from xmtc.estimate.probe import HeadSpeed, core_seconds, encoder_seconds, head_seconds
from xmtc.estimate.seconds import Speeds
from xmtc.estimate.size import Size, Survey, size_of_source, survey
from xmtc.init.answers import Answers
from xmtc.init.commented import commented_yaml, header, reasons
from xmtc.init.data_files import DataFiles, find_files, label_columns
from xmtc.init.facts import ColumnFacts, read_facts
from xmtc.init.recipes import (
    WIDTH,
    Candidate,
    Choice,
    Room,
    Settings,
    Task,
    candidates,
    choose,
    lengths_to_try,
)
from xmtc.init.roles import Roles, Surroundings, check_header, choose_roles
from xmtc.models.heads.config import HeadSettings
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import encoder_use
from xmtc.stages.table import stage_seconds
from xmtc.track.console import print_line
from xmtc.track.progress import Progress

_LEAST = 20
"""Minimum number of documents."""
_SHARE = 0.9
"""Share of the budget that is planned."""
_POSITIONS = 512
"""Tokens of a window of the packaged encoders, special ones included."""
_OTHER_LANGUAGES = 0.2
"""From this share of texts on, an encoder of many languages is worth twice the time."""
_LABELS_LOOKED_AT = 200
"""Labels from which it is told whether labels are words."""
_WORD = re.compile(r"[^\W\d_]{3,}|[^\W\d_\x00-\u02ff]")
"""Three letters, or one of a script whose letters are syllables or words."""
_PAIR_BYTES = 12
"""Bytes of a pair of documents where the linear scorer factorises them."""
_MEMORY_SHARE = 0.7
"""Share of the free memory that is planned."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The findings of `init`, and the configuration to write.

    Attributes:
        files, roles, found: the data.
        lengths: number of tokens of sampled documents.
        choice: recipe and estimate.
        budget_s: budget in seconds.
        encoder: name of the packaged encoder that suits the languages of the texts.
    """

    files: DataFiles
    roles: Roles
    found: Survey
    lengths: NDArray[np.int64]
    choice: Choice
    budget_s: float
    encoder: str

    @property
    def config(self) -> RunConfig:
        """The configuration."""
        return self.choice.candidate.config()

    def text(self, output: Path) -> str:
        """Return the configuration, for a file of this name, as YAML with comments."""
        return commented_yaml(
            self.choice.candidate.tree, reasons(self), header(self, output)
        )


def make_plan(data: str, answers: Answers, budget_s: float, name: str) -> Plan:
    """Inspect the data, measure the machine, and choose a recipe.

    Args:
        data: a file, a folder, or a URI of either.
        answers: options of the user.
        budget_s: seconds that a run may take.
        name: name of the run.

    Raises:
        ConfigError: the user says of the source what it does not have.
        DataError: the data cannot be read or are ambiguous; the message names the option that decides.
    """
    files = find_files(data, answers)
    roles = roles_of(files, answers)
    files = files.with_labels(roles.labels, roles.text)
    source = data_section(files, roles, name)
    found = survey(_data_config(files, source), Progress())
    check_learnable(found, roles, data, files.labels)
    task = _task(source | _handling(found, roles), name, roles, found)
    ids_N = found.token_ids(task.encoder)
    lengths_N = np.array([len(ids) for ids in ids_N])
    print_line("measuring this machine: a few seconds")
    window = _POSITIONS - sum(map(len, special_tokens(load_pretrained(task.encoder))))
    lengths = lengths_to_try(int(np.percentile(lengths_N, 95)), window)
    options = list(candidates(task, lengths))
    speeds = _measure(options, ids_N, lengths)
    return Plan(
        files=files,
        roles=roles,
        found=found,
        lengths=lengths_N,
        choice=_choose(options, found, lengths_N, speeds, budget_s),
        budget_s=budget_s,
        encoder=task.encoder,
    )


def roles_of(files: DataFiles, answers: Answers) -> Roles:
    """Infer the roles of the columns of the first file; the options of the user come first.

    Raises:
        DataError: see `choose_roles`, or the first line of a CSV file is a document.
    """
    try:
        return _roles_of_columns(
            files, answers, read_facts(files.rows(), files.place, within=False)
        )
    except DataError as refusal:
        columns = read_facts(files.rows(), files.place, within=True)
        if not any("." in column.name for column in columns):
            raise
        try:
            return _roles_of_columns(files, answers, columns)
        except DataError:
            raise refusal from None


def _roles_of_columns(
    files: DataFiles, answers: Answers, columns: Sequence[ColumnFacts]
) -> Roles:
    if files.fields is not None:
        answers = _with_fields(answers, files.fields, files.place)
    if files.named_by_line and not files.has_header:
        check_header(columns, files.place)
    if any(split != "train" for split in files.by_split):  # the files give the split
        columns = [column for column in columns if not column.is_split]
    around = Surroundings(
        export_columns=files.is_export, later_columns=_later_columns(files)
    )
    roles = choose_roles(columns, answers, files.place, around)
    names = {column.name for column in columns}
    if REJECTED not in names and any(map(files.says_what_was_rejected, files.added)):
        return replace(roles, rejected=REJECTED)
    return roles


def _with_fields(answers: Answers, fields: tuple[str, ...], place: str) -> Answers:
    """Take the columns of the text from the source.

    Raises:
        DataError: the user names columns, of which the source has no choice.
    """
    if answers.columns():
        named = ", ".join(answers.columns())
        raise DataError(
            f"{place}: the columns of this layout are fixed: leave out the options that name {named}"
        )
    return replace(answers, text=fields)


def _later_columns(files: DataFiles) -> frozenset[str] | None:
    """Return the columns of test files, which new texts have; None if there are no such files, or of another tool."""
    if files.is_export or "test" not in files.by_split:
        return None
    return frozenset().union(
        *(files.columns_of(name) for name in files.by_split["test"])
    )


def data_section(files: DataFiles, roles: Roles, name: str) -> Settings:
    """Make the `data` section, with files as the user named them."""
    columns: Settings = {
        "id": roles.id,
        "text": _one_or_list(roles.text),
        "categories": list(roles.categories) or None,
        "labels": _one_or_list(roles.labels),
        "label_separator": roles.separator,
        "label_cells": None if roles.label_cells == "marks" else roles.label_cells,
        "rejected": roles.rejected,
        "null_labels": None if roles.null_labels == "none" else roles.null_labels,
        "split": roles.split,
    }
    if roles.join_rows:
        columns["join_rows"] = True
    if roles.status is not None:
        column, values = roles.status
        columns["status"] = column
        columns["accepted"] = list(values)
    source: Settings = {
        "kind": files.kind,
        **files.names(),
    }
    if files.fields is None:
        source["columns"] = {
            key: value for key, value in columns.items() if value is not None
        }
    if files.labels is not None:
        source["labels"] = {
            "path": files.labels,
            "closed": False,
            **label_columns(files, roles),
        }
    section: Settings = {"source": source, "corpus": f"corpora/{name}"}
    if roles.task == "single_label":
        section["task"] = "single_label"
    return section


def _one_or_list(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def _data_config(files: DataFiles, section: Settings) -> DataConfig:
    """Make a `data` section with local files, for reading."""
    local = json.loads(json.dumps(section))
    local["source"] |= files.names(local=True)
    if files.labels is not None:
        local["source"]["labels"]["path"] = str(files.local[files.labels])
    return adapter(DataConfig).validate_json(json.dumps(local))


def check_learnable(
    found: Survey, roles: Roles, place: str, label_file: str | None
) -> None:
    """Refuse data from which nothing can be learnt.

    Raises:
        DataError: there are too few documents, or nothing in their labels to learn.
    """
    different = found.total + found.leaked + found.replaced - found.repeated
    if different < _LEAST:
        raise DataError(
            f"{place}: {different} different documents with text (and {found.rejected} bad rows); at least {_LEAST} "
            "are needed for training and measuring; name other columns of texts and labels, or give more data"
        )
    labels = ", ".join(map(repr, roles.labels))
    if found.labels_per_document == found.labels and not found.bare:
        raise DataError(
            f"{place}: every document has the same labels in {labels}, so there is nothing to learn; name "
            "another column of labels, or write the labels of ones if these are vectors of zeros and ones"
        )
    if found.label_counts.total() == found.labels:
        raise DataError(
            f"{place}: no label of {labels} has two documents, so none can be learnt; give lists if labels "
            "are joined, --label-separator in the command, or another column of labels"
        )
    if label_file is not None and not found.named:
        example = quoted_label(next(iter(found.label_counts)))
        raise DataError(
            f"{label_file}: no row stands for a label of the documents, such as {example} of {labels}: write labels "
            "there as the documents have them, name another column of the documents with --labels, or move the file "
            "away"
        )


def _handling(found: Survey, roles: Roles) -> Settings:
    """Say in the `data` section what happens to documents without labels, and to bad rows, if there are any."""
    settings: Settings = {}
    if roles.task == "single_label" and found.bare:
        settings["without_labels"] = "drop"
    if found.rejected:
        settings["on_bad_row"] = "skip"
    return settings


def _task(source: Settings, name: str, roles: Roles, found: Survey) -> Task:
    """Describe the task for recipes; labels that look like words serve as their names."""
    documents = found.documents.get("train", 0)
    return Task(
        source=source,
        name=name,
        labels=found.labels,
        documents=documents,
        per_label=found.labels_per_document * documents / found.labels,
        readable=_are_words(found.label_counts) or found.named > 0,
        single=roles.task == "single_label",
        most_factorised=min(25_000, int(_most_pairs() ** 0.5)),
        gpu=torch.cuda.is_available(),
        trees=find_spec("omikuji") is not None,
        encoder=encoder_for(found.languages),
        fields=roles.text,
        categories=roles.categories,
        own_dev=roles.split is not None or "dev" in source["source"].get("files", {}),
    )


def _most_pairs() -> float:
    """Return how many pairs of documents fit the memory."""
    return _MEMORY_SHARE * psutil.virtual_memory().available / _PAIR_BYTES


def _are_words(labels: Mapping[str, int]) -> bool:
    """Whether most labels are words, and no codes or abbreviations."""
    first = list(labels)[:_LABELS_LOOKED_AT]
    words = sum(
        _WORD.search(label) is not None and not label.isupper() for label in first
    )
    return words > len(first) / 2


def encoder_for(languages: Mapping[str, int]) -> str:
    """Choose a packaged encoder that knows the languages of the texts, if one is installed."""
    multilingual = others_than_english(languages) > _OTHER_LANGUAGES and is_there(
        MULTILINGUAL
    )
    return MULTILINGUAL if multilingual else DEFAULT_BACKBONE


def _measure(
    options: Sequence[Candidate],
    ids_N: Sequence[NDArray[np.int32]],
    lengths: Sequence[int],
) -> Speeds:
    """Measure this machine with the encoders of the recipes, on documents of the data."""
    trained_s: dict[int, float] = {}
    for option in options:
        config = option.config()
        use = encoder_use(config)
        if use.trains and use.trained_length not in trained_s:
            trained_s |= encoder_seconds(
                config, ids_N, [use.trained_length], train=True
            )
    frozen = next(option for option in reversed(options) if option.recipe.encodes)
    encode_s = encoder_seconds(frozen.config(), ids_N, lengths)
    return Speeds(
        core_s=core_seconds(), encode_s=encode_s, head=None, train_s=trained_s
    )


def _choose(
    options: Sequence[Candidate],
    found: Survey,
    lengths: NDArray[np.int64],
    speeds: Speeds,
    budget_s: float,
) -> Choice:
    """Choose the best recipe that fits; a head's speed is measured when the first recipe with it comes up."""
    room = Room(
        seconds=_SHARE * budget_s,
        memory=psutil.virtual_memory().available,
        disk=shutil.disk_usage(Path.cwd()).free,
    )
    head_speeds: dict[HeadSettings, HeadSpeed] = {}

    def timed(config: RunConfig, size: Size) -> dict[str, float]:
        head = config.model.head
        if head.scores and head not in head_speeds:
            head_speeds[head] = head_seconds(
                config, WIDTH, size.labels, size.labels_per_document
            )
        return stage_seconds(
            config, size, replace(speeds, head=head_speeds.get(head)), WIDTH
        )

    return choose(
        options, lambda config: size_of_source(config, found, lengths), timed, room
    )
