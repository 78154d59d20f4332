"""`xmtc init`: inspect data and machine, choose the best recipe that fits the budget, and write its configuration."""

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

from xmtc.config.load import load_config
from xmtc.config.shape import adapter
from xmtc.data.config import DataConfig
from xmtc.data.overview import ONE_LABEL, warnings_of
from xmtc.data.pretrained import DEFAULT_BACKBONE, MULTILINGUAL, is_there, others_than_english, unknown_languages
from xmtc.data.readers.base import quoted_label, shown_column
from xmtc.data.readers.table_config import SplitFilesConfig, label_source
from xmtc.data.tokenizer import load_pretrained, special_tokens
from xmtc.errors import ConfigError, DataError
from xmtc.estimate.probe import HeadSpeed, core_seconds, encoder_seconds, head_seconds
from xmtc.estimate.seconds import Speeds, in_words, stage_seconds
from xmtc.estimate.size import Size, Survey, size_of_source, survey
from xmtc.files import resolve_links, write_text
from xmtc.init.commented import commented_yaml, header, reasons
from xmtc.init.data_files import DataFiles, find_files, label_columns
from xmtc.init.facts import read_facts
from xmtc.init.recipes import WIDTH, Candidate, Choice, Room, Settings, Task, candidates, choose, lengths_to_try
from xmtc.init.roles import Answers, Roles, check_header, choose_roles
from xmtc.models.heads.config import HeadSettings
from xmtc.run.config import RUN_NAME, RunConfig
from xmtc.track.console import print_line
from xmtc.track.progress import Progress

_LEAST = 20  # minimum number of documents
_SHARE = 0.9  # share of the budget that is planned
_POSITIONS = 512  # tokens of a window of the packaged encoders, special ones included
_OTHER_LANGUAGES = 0.2  # from this share of texts on, an encoder of many languages is worth twice the time


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
        return commented_yaml(self.choice.candidate.tree, reasons(self), header(self, output))


def seconds_of(budget: str) -> float:
    """Parse a budget such as `10m`, `1h`, `1h30m` or `90s` to seconds.

    Raises:
        ConfigError: the budget is invalid.
    """
    text = str(budget).strip().lower()  # Python callers may give a number
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([hms])", text)
    seconds = sum(float(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts)
    if not seconds or re.sub(r"\d+(?:\.\d+)?\s*[hms]\s*", "", text):
        raise ConfigError(f"budget {budget}: give hours, minutes or seconds above 0, such as 10m, 1h or 1h30m")
    return seconds


def make_plan(data: str, answers: Answers, budget_s: float, name: str) -> Plan:
    """Inspect the data, measure the machine, and choose a recipe.

    Args:
        data: a file, a folder, or a URI of either.
        answers: options of the user.
        budget_s: seconds that a run may take.
        name: name of the run.

    Raises:
        DataError: the data cannot be read or are ambiguous; the message names the option that decides.
    """
    files = find_files(data)
    roles = _roles(files, answers)
    source = _data_section(files, roles, name)
    progress = Progress()
    found = survey(_data_config(files, source), progress)
    source |= _check(found, roles, data, files.labels)
    task = _task(source, name, roles, found)
    ids_N = found.token_ids(task.encoder)
    lengths = np.array([len(ids) for ids in ids_N])
    print_line("measuring this machine: a few seconds")
    window = _POSITIONS - sum(map(len, special_tokens(load_pretrained(task.encoder))))
    tried = lengths_to_try(int(np.percentile(lengths, 95)), window)
    options = list(candidates(task, tried))
    trained_s: dict[int, float] = {}
    for option in options:
        if (config := option.config()).trains_encoder and config.trained_length not in trained_s:
            trained_s |= encoder_seconds(config, ids_N, [config.trained_length], train=True)
    frozen = next(option for option in reversed(options) if option.recipe.encodes)
    encode_s = encoder_seconds(frozen.config(), ids_N, tried)
    speeds = Speeds(core_s=core_seconds(), encode_s=encode_s, head=None, train_s=trained_s)
    choice, encoder = _choose(options, found, lengths, speeds, budget_s), task.encoder
    return Plan(
        files=files, roles=roles, found=found, lengths=lengths, choice=choice, budget_s=budget_s, encoder=encoder
    )


def name_of(data: str) -> str:
    """Make the name of a run from its data: the file name without extension."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", data.rstrip("/").rsplit("/", 1)[-1].split(".")[0]).strip("-") or "run"


def summary(plan: Plan) -> list[str]:
    """Summarise findings and choice, for the terminal."""
    found, roles, choice = plan.found, plan.roles, plan.choice
    splits = ", ".join(f"{split} {number:,}" for split, number in found.documents.items())
    lines = [
        f"{plan.files.place}: {'' if found.exact else 'about '}{found.total:,} documents ({splits}), "
        f"{found.part}{found.labels:,} labels, {found.labels_per_document:.1f} per document",
        f"text: {' + '.join(map(shown_column, roles.text))} ({roles.why['text']}); "
        f"labels: {', '.join(map(shown_column, roles.labels))} ({roles.why['labels']})",
    ]
    if file := label_source(plan.config.data.source):
        lines.append(f"{file.path}: labels: {file.label}; names: {file.name}; parents: {file.parents}")
    lines += [f"warning: {line}" for line in label_doubts(found, roles)]
    if other := unknown_languages(plan.encoder, found.languages):
        lines.append(f"warning: {other}")
    kept = "kept: no label fits them" + ("" if roles.found.several else "; --task single_label leaves them out")
    notes = {
        f"documents without labels, {'left out' if roles.task == 'single_label' else kept}": found.bare,
        "rows that are not documents, skipped": found.rejected,
        "labels without a name in the label file": found.labels - found.named if plan.files.labels else 0,
        "documents that repeat an earlier text": found.repeated,
        "dev or test documents that repeat a training text, dropped": found.leaked,
    }
    lines += [f"{found.part}{number:,} {words}" for words, number in notes.items() if number]
    lines.append(machine())
    if roles.categories:
        lines.append(f"categories, to take out if not known: {', '.join(map(shown_column, roles.categories))}")
    if roles.unused:
        lines.append(f"not read: {', '.join(map(shown_column, roles.unused))}")
    if left := plan.files.left_out:
        lines.append(f"warning: left out, not named train, dev, test or labels: {', '.join(left)}"[:1000])
    stages = ", ".join(f"{stage} {in_words(seconds)}" for stage, seconds in choice.stages.items())
    lines.append(f"recipe: {choice.candidate.recipe.what}, at {choice.candidate.max_length} tokens")
    lines.append(f"estimate: {in_words(choice.seconds)} of {in_words(plan.budget_s)} ({stages})")
    if not choice.fits:
        lines.append("nothing fits this budget and machine: this is the cheapest recipe; give a larger budget")
    return lines


def label_doubts(found: Survey, roles: Roles) -> list[str]:
    """List signs that the labels are wrong."""
    alone = roles.found.several <= (1 - ONE_LABEL) * roles.found.rows
    return warnings_of(found.label_counts, alone=alone, relabelled=found.relabelled if alone else 0.0)


def _roles(files: DataFiles, answers: Answers) -> Roles:
    columns = read_facts(files.rows(), files.place)
    if files.settings.named_by_line:
        check_header(columns, files.place)
    if any(split != "train" for split in files.by_split):  # the files give the split
        columns = [column for column in columns if not column.is_split]
    return choose_roles(columns, answers, files.place)


def _data_section(files: DataFiles, roles: Roles, name: str) -> Settings:
    """Make the `data` section, with files as the user named them."""
    columns = {
        "id": roles.id,
        "text": roles.text[0] if len(roles.text) == 1 else list(roles.text),
        "categories": list(roles.categories) or None,
        "labels": roles.labels[0] if len(roles.labels) == 1 else roles.labels,
        "label_separator": roles.separator,
        "split": roles.split,
    }
    named = {split: names[0] if len(names) == 1 else list(names) for split, names in files.by_split.items()}
    source: Settings = {"kind": files.settings.kind, "files": named}
    source["columns"] = {key: value for key, value in columns.items() if value is not None}
    if files.labels is not None:
        source["labels"] = {"path": files.labels, "closed": False, **label_columns(files, roles)}
    section: Settings = {"source": source, "corpus": f"corpora/{name}"}
    return section | ({"task": "single_label"} if roles.task == "single_label" else {})


def _data_config(files: DataFiles, section: Settings) -> DataConfig:
    """Make a `data` section with local files, for reading."""
    local = json.loads(json.dumps(section))
    local["source"]["files"] = {
        split: [str(files.local[name]) for name in names] for split, names in files.by_split.items()
    }
    if files.labels is not None:
        local["source"]["labels"]["path"] = str(files.local[files.labels])
    return adapter(DataConfig).validate_json(json.dumps(local))


def _check(found: Survey, roles: Roles, place: str, label_file: str | None) -> Settings:
    """Refuse data from which nothing can be learnt. Return further settings of the `data` section."""
    different = found.total + found.leaked - found.repeated
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
        raise DataError(
            f"{label_file}: has no label of {labels}, such as "
            f"{quoted_label(next(iter(found.label_counts)))}: write them alike, name another column with --labels, or "
            "move the file away"
        )
    settings: Settings = {"without_labels": "drop"} if roles.task == "single_label" and found.bare else {}
    return settings | ({"on_bad_row": "skip"} if found.rejected else {})


def _task(source: Settings, name: str, roles: Roles, found: Survey) -> Task:
    """Describe the task for recipes; labels that look like words serve as their names."""
    some = list(found.label_counts)[:200]
    wordy = sum(
        bool(re.search(r"[^\W\d_]{3,}|[^\W\d_\x00-\u02ff]", label)) and not label.isupper() for label in some
    ) > 0.5 * len(some)
    return Task(
        source=source,
        name=name,
        labels=found.labels,
        documents=found.documents.get("train", 0),
        per_label=found.labels_per_document * found.documents.get("train", 0) / found.labels,
        readable=wordy or found.named > 0,
        single=roles.task == "single_label",
        most_factorised=min(25_000, int((psutil.virtual_memory().available / 17) ** 0.5)),  # 12 bytes a pair, of 70 %
        gpu=torch.cuda.is_available(),
        trees=find_spec("omikuji") is not None,
        encoder=encoder_for(found.languages),
        fields=roles.text,
        categories=roles.categories,
        own_dev=roles.split is not None or "dev" in source["source"]["files"],
    )


def encoder_for(languages: Mapping[str, int]) -> str:
    """Choose a packaged encoder that knows the languages of the texts, if one is installed."""
    multilingual = others_than_english(languages) > _OTHER_LANGUAGES and is_there(MULTILINGUAL)
    return MULTILINGUAL if multilingual else DEFAULT_BACKBONE


def _choose(
    options: Sequence[Candidate], found: Survey, lengths: NDArray[np.int64], speeds: Speeds, budget_s: float
) -> Choice:
    room = Room(
        seconds=_SHARE * budget_s, memory=psutil.virtual_memory().available, disk=shutil.disk_usage(Path.cwd()).free
    )
    heads: dict[HeadSettings, HeadSpeed] = {}

    def timed(config: RunConfig, size: Size) -> dict[str, float]:
        settings = config.model.head
        if settings.scores and settings not in heads:
            heads[settings] = head_seconds(config, WIDTH, size.labels, size.labels_per_document)
        return stage_seconds(config, size, replace(speeds, head=heads.get(settings)), WIDTH)

    return choose(options, lambda config: size_of_source(config, found, lengths), timed, room)


def machine() -> str:
    """Describe cores, memory, disk and GPUs in words."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    free = shutil.disk_usage(Path.cwd()).free
    return (
        f"{psutil.cpu_count()} cores, {psutil.virtual_memory().available / 2**30:.0f} GiB of memory and "
        f"{free / 2**30:.0f} GiB of disk free, {', '.join(gpus) or 'no GPU'}"
    )


DEFAULT_BUDGET = "1h"


def write_config(
    data: str, answers: Answers, *, budget: str = DEFAULT_BUDGET, name: str | None = None, output: Path | None = None
) -> Path:
    """Choose and write a configuration, and print a summary.

    Args:
        data: a file, a folder, or a URI of either.
        answers: options of the user.
        budget: budget, such as `10m`.
        name: name of the run. Default: the name of the data.
        output: file to write. Default: `<name>.yaml`.

    Raises:
        ConfigError: the file already exists, or the budget is invalid.
        DataError: see `make_plan`.
    """
    seconds, name = seconds_of(budget), name or name_of(data)
    if not re.fullmatch(RUN_NAME, name):
        raise ConfigError(f"--name {name}: a name has letters, digits, '_', '-', and '.' after the first; change it")
    output = output or Path(f"{name}.yaml")
    _check_free(output)
    write_text(output, "")
    output.unlink()  # it can be written: the machine is measured for a minute now
    plan = make_plan(data, answers, seconds, name)
    _check_free(output)
    write_text(output, plan.text(output))
    print("\n".join(summary(plan)))
    print(f"written: {output}; next: xmtc train {output}")
    return output


def _check_free(output: Path) -> None:
    if output.exists():
        raise ConfigError(f"{output} already exists: give another name with -o, or delete it")


def config_for(data: str) -> Path:
    """Find the configuration that `xmtc init` wrote for some data, or write it now.

    Raises:
        ConfigError: the configuration of this name is for other data.
    """
    config = Path(f"{name_of(data)}.yaml")
    if config.exists():
        files = getattr(load_config(RunConfig, config).data.source, "files", SplitFilesConfig(train=()))
        given = {resolve_links(Path(name)): name for names in find_files(data).by_split.values() for name in names}
        read = {resolve_links(path) for _, path in files.by_split()}
        if read.isdisjoint(given):
            raise ConfigError(f"{config}: exists, and reads other data than {data}; give a name by xmtc init --name")
        unread = "".join(f"; it does not read {name}" for path, name in given.items() if path not in read)
        print_line(f"using the existing configuration {config}{unread}")
        return config
    return write_config(data, Answers(), output=config)
