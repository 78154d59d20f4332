"""Read and write `config.json` of an exported model, without loading weights."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from xmtc.artefact.output import EDITABLE, FORMAT
from xmtc.artefact.unfinished import CONFIG, why_no_model
from xmtc.config.shape import adapter
from xmtc.data.config import Task
from xmtc.data.fields import ONE_FIELD
from xmtc.data.readers.columns import DocumentColumns
from xmtc.data.readers.table_config import LabelFileConfig
from xmtc.errors import CheckpointError
from xmtc.files import (
    file_sha256,
    parse_json,
    read_file,
    reading,
    recover_directory,
    resolve_links,
    write_json,
)
from xmtc.models.config import ModelConfig

FORMAT_VERSION = 7
STRICT = ConfigDict(extra="forbid", strict=True)
_CHECKSUMS = "sha256"
_READ = frozenset({".safetensors", ".arrow", ".json", ".faiss", ".txt", ".model"})
"""Extensions of the files that loading a model may read."""
_MOST_BYTES = 1 << 30
"""Of a file that is read as a whole; those of very many labels have some tens of megabytes."""
_COPY = "copy the whole model folder again, or export the model again"


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The description of an exported model, without its weights.

    Attributes:
        name: name of the run that made it.
        model: encoder and head.
        vocab_size: number of token ids of the tokenizer.
        max_length: maximum number of content tokens of a document; longer documents are truncated.
        task: whether a document has any number of labels (sigmoid) or exactly one (softmax).
        corpus: fingerprint of the corpus it was trained on.
        columns: columns of id and text in the training data; None if they were not a table.
        fields: names of the fields of documents, in order.
        categories: names of their categories.
        label_file: file with the labels' names, without its folder; None if there was none.
        vocabulary: version of that file.
        weights: see `EncoderSettings.weights`, as they were in training.
        dev: metrics on dev; empty if the labels were changed afterwards.
    """

    __pydantic_config__: ClassVar = STRICT

    name: str
    model: ModelConfig
    vocab_size: Annotated[int, Field(ge=1)]
    max_length: Annotated[int, Field(ge=1)]
    task: Task = "multi_label"
    corpus: str = ""
    columns: DocumentColumns | None = None
    fields: Annotated[tuple[str, ...], Field(min_length=1)] = ONE_FIELD
    categories: tuple[str, ...] = ()
    label_file: LabelFileConfig | None = None
    vocabulary: str = ""
    weights: str = ""
    dev: Mapping[str, float] = field(default_factory=dict)

    @property
    def named(self) -> DocumentColumns:
        """The fields and categories by their names."""
        return DocumentColumns(text=self.fields, categories=self.categories)

    @property
    def has_index(self) -> bool:
        """Whether the model has an index of labels: its head scores, and probabilities of labels are independent."""
        return self.model.head.scores and self.task == "multi_label"


def write_info(folder: Path, info: ModelInfo) -> None:
    """Write `config.json`, with the checksums of the files in the folder."""
    checksums = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in EDITABLE:
            checksums[name] = file_sha256(path)
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **adapter(ModelInfo).dump_python(info, mode="json"),
        _CHECKSUMS: checksums,
    }
    write_json(folder / "config.json", content, indent=2)


def read_info(directory: Path) -> ModelInfo:
    """Read the description of a model, after checking every file against its checksum.

    Raises:
        CheckpointError: a file is missing, damaged or has the wrong format, or a package that the model needs is not
            installed.
    """
    _check_files(directory, _content(directory).get(_CHECKSUMS))
    return read_description(directory)


def read_description(directory: Path) -> ModelInfo:
    """Read the description of a model, and no other file.

    Raises:
        CheckpointError: see `read_info`.
    """
    path = directory / "config.json"
    content = _content(directory)
    content.pop(_CHECKSUMS, None)
    with reading(
        path,
        CheckpointError,
        "export the model again, or install the package that adds an unknown kind",
    ):
        return adapter(ModelInfo).validate_json(json.dumps(content))


def _content(directory: Path) -> dict[str, Any]:
    """Read `config.json` without its format."""
    path = directory / "config.json"
    content = read_model_json(path)
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise CheckpointError(
            f"{path}: not a model exported by xmtc; give the `model` folder of a run"
        )
    version = content.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format version {version}, this xmtc reads {FORMAT_VERSION}: install its xmtc"
        )
    return content


def read_model_json(path: Path) -> Any:
    """Read a JSON file of a model.

    Raises:
        CheckpointError: the file is missing or damaged, or has a key twice.
    """
    content = _bytes_of(path)
    with reading(path, CheckpointError, _COPY):
        return parse_json(content)


def _bytes_of(path: Path) -> bytes:
    if not path.exists():
        with reading(path, CheckpointError, _COPY):
            recover_directory(resolve_links(path.parent))
    if not path.exists():
        raise CheckpointError(
            why_no_model(path.parent)
            if path.name == CONFIG
            else f"{path}: missing: {_COPY}"
        )
    with reading(path, CheckpointError, _COPY):
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise ValueError(f"{size:,} bytes, and at most {_MOST_BYTES:,} are read")
        return read_file(path)


def _check_inside(directory: Path, names: Iterable[str]) -> None:
    """Refuse files that are links to another place, or whose names lead there: copies of a model would contain them.

    The Hub's cache has links of its own, to the files beside all its snapshots.
    """
    root = resolve_links(directory)
    cache = root.parents[1] / "blobs" if root.parent.name == "snapshots" else root
    for name in names:
        place = resolve_links(directory / name)
        if not (place.is_relative_to(root) or place.is_relative_to(cache)):
            raise CheckpointError(
                f"{directory / name}: leads out of the model folder: put a copy of the file there"
            )


def _check_files(directory: Path, checksums: Any) -> None:
    """Refuse a model if a file is missing, has no checksum, differs from it, or is somewhere else."""
    path = directory / "config.json"
    if not isinstance(checksums, dict) or not all(
        isinstance(value, str) for value in checksums.values()
    ):
        raise CheckpointError(
            f"{path}: {_CHECKSUMS}: missing, so damage cannot be detected; {_COPY}"
        )
    _check_inside(directory, ["config.json", *EDITABLE, *checksums])
    known = {"config.json", *EDITABLE, *checksums}
    for file in sorted(directory.rglob("*")):
        may_be_read = (
            file.suffix in _READ and not file.name.startswith(".") and file.is_file()
        )
        if may_be_read and file.relative_to(directory).as_posix() not in known:
            raise CheckpointError(
                f"{file}: has no checksum in {path.name}: remove it, or {_COPY}"
            )
    for name, expected in checksums.items():
        if not (directory / name).is_file():
            raise CheckpointError(f"{directory / name}: missing: {_COPY}")
        with reading(directory / name, CheckpointError, _COPY):
            checksum = file_sha256(directory / name)
        if checksum != expected:
            raise CheckpointError(
                f"{directory / name}: damaged (checksum differs): {_COPY}"
            )


def model_digest(directory: Path) -> str:
    """Compute a digest that changes whenever the model's predictions may. `config.json` holds checksums of the weights.

    Raises:
        CheckpointError: there is no model.
    """
    digest = hashlib.sha256()
    for name in ("config.json", "thresholds.json"):
        digest.update(_bytes_of(directory / name))
    return digest.hexdigest()


def check_same(directory: Path, digest: str) -> None:
    """Raise CheckpointError if a model is another than the one with this digest."""
    if model_digest(directory) != digest:
        raise CheckpointError(
            f"{directory}: replaced by another model meanwhile; run the command again"
        )


def vocabulary_warning(model: str, other: str, what: str) -> str:
    """Compare the version of a model's vocabulary with another one.

    Args:
        model: version of the model's vocabulary.
        other: version of the other vocabulary.
        what: what has the other version, such as "the corpus".

    Returns:
        A warning if both versions are known and differ; else an empty string.
    """
    if not model or not other or model == other:
        return ""
    return f"the model's vocabulary is {model}, that of {what} {other}: see `xmtc labels diff`"
