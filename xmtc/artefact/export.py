"""The exported model: a directory of safetensors, JSON and Arrow. It has no pickle and no code that loading would run.

config.json          format, the model's configuration, task, sizes, identity of the backbone, checksums
head.safetensors     the head
scorers/             the scorers, their vocabulary and their fusion, if any
adapter/             PEFT layout, with LoRA
encoder/             the whole encoder, unless it is an unchanged pretrained model
tokenizer/           Hugging Face layout
labels.arrow         label, name, train_count, parents; row number = label id
calibration.safetensors  scale and offset of each label's logit, if fitted
labels.faiss, index.json  the index of the labels and its recall; multi-label models with a head only
thresholds.json      the rule of the decision, and its thresholds
smoke.json           documents with the model's answers, see `xmtc.predict.smoke`
outcomes.safetensors what came of the scores on dev, for other rules; multi-label models only
profile.safetensors  numbers on training and dev texts, for `xmtc drift`
README.md            model card
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import BaseModel, Field
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from xmtc.artefact.card import model_card
from xmtc.artefact.contract import (
    CALIBRATION,
    LABELS,
    OUTCOMES,
    SCORERS,
    check_arrays,
)
from xmtc.artefact.info import (
    STRICT,
    ModelInfo,
    check_same,
    model_digest,
    read_info,
    read_model_json,
    write_info,
)
from xmtc.artefact.output import HEAD, SMOKE, check_output, model_files, replacing
from xmtc.artefact.profile import Profile
from xmtc.data.array_contract import FIX
from xmtc.data.checked_tensors import reading_once
from xmtc.data.labels import LabelTable, check_labels
from xmtc.data.tokenizer import load_saved
from xmtc.errors import CheckpointError, ConfigError
from xmtc.files import reading, write_json, write_text
from xmtc.fusion.config import Rule
from xmtc.fusion.decision import BEST, HALF, Decision, Outcomes
from xmtc.fusion.ensemble import Ensemble
from xmtc.mining.config import IndexConfig
from xmtc.mining.index import INDEX, LabelIndex, LabelVectors
from xmtc.models.calibration import Calibration
from xmtc.models.classifier import Classifier
from xmtc.models.encoders.base import FOLDER as ENCODER
from xmtc.models.module_files import load_weights, part, whole

THRESHOLDS = "thresholds.json"
Finish = Callable[[Path], None]
"""Adds more to the folder of a finished model before it is published."""


_Probability = Annotated[float, Field(ge=0, le=1)]


class _Thresholds(BaseModel):
    """The content of `thresholds.json`."""

    model_config = STRICT
    rule: Rule
    global_: Annotated[_Probability, Field(alias="global")]
    per_label: list[_Probability] | None


@dataclass(frozen=True)
class ModelParts:
    """The parts of an exported model. After loading, they are on the CPU and in evaluation mode.

    Attributes:
        info: configuration and sizes.
        classifier: the weights.
        tokenizer: tokenizer of the corpus.
        labels: labels of the corpus.
        decision: which labels are predicted.
        outcomes: outcomes of dev, on which another decision can be tuned; None for single-label tasks.
        ensemble: scorers and their fusion with the head; None if only the head scores.
        index: index of a loaded model. Export does not write this one, because the tables may have changed.
        profile: what is known of the texts of training and dev; models that are not of a run have none.
        digest: see `model_digest`; of a loaded model.
    """

    info: ModelInfo
    classifier: Classifier
    tokenizer: PreTrainedTokenizerFast
    labels: LabelTable
    decision: Decision = HALF
    outcomes: Outcomes | None = None
    ensemble: Ensemble | None = None
    index: LabelIndex | None = None
    profile: Profile | None = None
    digest: str = ""

    def with_head(
        self, tensors: Mapping[str, Tensor], calibration: Calibration | None
    ) -> "ModelParts":
        """Return the model with a head of these tensors, which are not copied, and a calibration of its logits."""
        encoder, labels = self.classifier.encoder, len(tensors["bias"])
        with torch.device("meta"):
            head = self.info.model.head.build(encoder.width, labels)
        head.load_state_dict(dict(tensors), assign=True)
        classifier = Classifier(encoder, head, labels)
        classifier.calibration = calibration
        return replace(self, classifier=classifier)


def export_model(
    directory: Path,
    parts: ModelParts,
    trained: Mapping[str, Tensor],
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    index: LabelIndex | None = None,
    finish: Finish | None = None,
) -> Path:
    """Write the exported model under a temporary name, and publish it in one step, replacing an earlier one.

    Args:
        directory: the model directory.
        parts: the parts to write; of the classifier, only tensors that are not in `trained`, and the calibration.
        trained: whole tensors (as a strategy gathers them) by the classifier's parameter names. Without LoRA, the
            export includes the whole encoder if `trained` has an `encoder.` tensor.
        metrics: values by split and metric, for the model card.
        index: index of exactly these labels. Default: built here, if the model has one.
        finish: adds more to the finished model before it is published, such as answers to check it by.

    Raises:
        CheckpointError: a tensor is empty (a shard of ZeRO-3 that was not gathered), or a file cannot be written.
    """
    classifier = parts.classifier
    tensors = classifier.state_dict() | dict(trained)
    with replacing(Path(directory)) as temporary:
        has_encoder = classifier.encoder.save(
            temporary, part(tensors, "encoder."), part(trained, "encoder.")
        )
        parts = parts.with_head(
            whole(part(tensors, "head."), "head."), classifier.calibration
        )
        write_label_parts(temporary, parts, index)
        if parts.profile is not None:
            parts.profile.save(temporary)
        parts.tokenizer.save_pretrained(temporary / "tokenizer")
        write_text(
            temporary / "README.md",
            _card(parts, metrics or {}, has_encoder=has_encoder),
        )
        write_info(temporary, parts.info)
        if finish is not None:
            finish(temporary)
    return Path(directory)


def write_label_parts(
    folder: Path, parts: ModelParts, index: LabelIndex | None = None
) -> None:
    """Write everything that has one row per label.

    Args:
        folder: a directory that becomes the model's.
        parts: the model.
        index: index of these labels. Default: built here with the settings of the model's, if it has one.
    """
    head = parts.classifier.head
    calibration = parts.classifier.calibration
    save_file(head.state_dict(), folder / HEAD)
    if parts.info.has_index:
        settings = IndexConfig() if parts.index is None else parts.index.config
        (index or LabelIndex(LabelVectors.of(head, calibration), settings)).save(folder)
    if calibration is not None:
        calibration.save(folder / CALIBRATION)
    if parts.ensemble is not None:
        parts.ensemble.save(folder / SCORERS)
    parts.labels.save(folder / LABELS)
    if parts.outcomes is not None:
        parts.outcomes.save(folder / OUTCOMES)
    write_decision(folder / THRESHOLDS, parts.decision)


def _card(
    parts: ModelParts, metrics: Mapping[str, Mapping[str, float]], *, has_encoder: bool
) -> str:
    contents = (
        "the whole model"
        if has_encoder
        else "the trained weights; the backbone is loaded by its name"
    )
    backbone = parts.classifier.encoder.backbone
    base = None if backbone is None else backbone.name
    return model_card(
        parts.info,
        parts.classifier,
        len(parts.labels),
        base=base,
        contents=contents,
        metrics=metrics,
    )


def load_model(directory: Path) -> ModelParts:
    """Read an exported model, after checking every file against its checksum.

    Raises:
        CheckpointError: a file is missing, damaged or of another kind; names it. Or the model has been replaced.
    """
    directory = Path(directory)
    digest = model_digest(directory)
    try:
        with reading_once():
            parts = _read_parts(directory)
    finally:  # files of two models do not fit each other
        check_same(directory, digest)
    return replace(parts, digest=digest)


def _read_parts(directory: Path) -> ModelParts:
    info = read_info(directory)
    check_labels(directory / LABELS, CheckpointError, FIX)
    labels = LabelTable.load(directory / LABELS)
    decision = (
        BEST
        if info.task == "single_label"
        else read_decision(directory / THRESHOLDS, len(labels))
    )
    classifier = _read_classifier(directory, info, len(labels))
    check_arrays(directory, info, len(labels), classifier.encoder.width)
    outcomes = read_outcomes(directory)
    tokenizer = load_saved(
        directory / "tokenizer", info.vocab_size, CheckpointError, FIX
    )
    ensemble = None
    if info.model.scorers:
        ensemble = Ensemble.load(
            directory / SCORERS,
            info.model.scorers,
            info.model.fusion,
            has_head=info.model.head.scores,
        )
    index = LabelIndex.open(directory, len(labels))
    if index is not None and index.width != LabelVectors.of(classifier.head).shape[1]:
        raise CheckpointError(
            f"{directory / INDEX}: holds vectors of another width than the head's; {FIX}"
        )
    profile = Profile.load(directory)
    return ModelParts(
        info,
        classifier.eval(),
        tokenizer,
        labels,
        decision,
        outcomes,
        ensemble,
        index,
        profile,
    )


def write_decision(path: Path, decision: Decision) -> None:
    """Write `thresholds.json`."""
    per_label = None
    if decision.thresholds_L is not None:
        per_label = [
            float(str(threshold)) for threshold in decision.thresholds_L
        ]  # the shortest decimals
    write_json(
        path,
        {"rule": decision.rule, "global": decision.threshold, "per_label": per_label},
    )


def _read_classifier(directory: Path, info: ModelInfo, labels: int) -> Classifier:
    model = replace(
        info.model, encoder=info.model.encoder.exported(directory / ENCODER)
    )
    if (
        not (directory / ENCODER).is_dir()
        and info.weights
        and model.encoder.weights not in ("", info.weights)
    ):
        raise CheckpointError(
            f"{directory}: its encoder, in another folder, has changed: restore it, or train again"
        )
    try:
        classifier = model.build(info.vocab_size, labels)
    except ConfigError as error:
        raise CheckpointError(f"{directory}/config.json: {error}") from error
    except (MemoryError, RuntimeError) as error:  # sizes that no memory holds
        raise CheckpointError(
            f"{directory}/config.json: a model of these sizes cannot be built here"
        ) from error
    load_weights(classifier.head, directory / HEAD)
    if (directory / CALIBRATION).is_file():
        classifier.calibration = Calibration.load(directory / CALIBRATION, labels)
    classifier.encoder.load(directory)
    return classifier


def copy_model(model: Path, output: Path, digest: str) -> Path:
    """Copy a model's own files to another folder, replacing a model that is there.

    Args:
        model: folder of the model.
        output: see `check_output`.
        digest: `model_digest` of the model when it was loaded.

    Raises:
        CheckpointError: the model is missing, or has been replaced by another one.
        ConfigError: `output` holds something that is not a model.
        StorageError: it cannot be written.
    """
    check_output(output, model)
    check_same(model, digest)
    names = model_files((model / "config.json").read_bytes())
    with replacing(output) as folder:
        for name in sorted(names):
            if (model / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model / name, folder / name)
        check_same(model, digest)
    return output


def read_outcomes(directory: Path) -> Outcomes | None:
    """Read the outcomes of a model's dev split; None if it has none.

    Raises:
        CheckpointError: the file is damaged.
    """
    return (
        Outcomes.load(directory / OUTCOMES) if (directory / OUTCOMES).exists() else None
    )


def read_decision(path: Path, labels: int) -> Decision:
    """Read `thresholds.json`.

    Raises:
        CheckpointError: the file is missing or damaged, or belongs to another model.
    """
    content = read_model_json(path)
    with reading(path, CheckpointError, "export the model again"):
        thresholds = _Thresholds.model_validate(content)
    per_label = thresholds.per_label
    if per_label is None:
        return Decision(thresholds.global_, None, thresholds.rule)
    if len(per_label) != labels:
        raise CheckpointError(
            f"{path}: per_label has {len(per_label)} thresholds, and the model has {labels} labels: correct it, or "
            "export the model again"
        )
    return Decision(
        thresholds.global_, np.array(per_label, np.float32), thresholds.rule
    )


def open_model(model: Path, output: Path) -> ModelParts:
    """Read a model to change its labels.

    Raises:
        CheckpointError: the model is missing or damaged.
        ConfigError: `output` holds something that is not a model.
    """
    check_output(output, model)
    return load_model(model)


def write_model(
    model: Path,
    output: Path,
    changed: ModelParts,
    note: str,
    index: LabelIndex | None = None,
    finish: Finish | None = None,
) -> None:
    """Write the model with changed labels.

    Args:
        model: the original model, which does not change.
        output: directory of the new model.
        changed: the parts of the original model, with changed ones in their places.
        note: sentence for the model card.
        index: index of the changed labels; built here by default.
        finish: see `export_model`.

    Raises:
        CheckpointError: a file cannot be written, or the original model has been replaced.
    """
    with replacing(output) as folder:
        for path in filter(Path.is_file, model.rglob("*")):
            name = path.relative_to(model)
            if name.parts[0] not in (
                "config.json",
                SMOKE,
                SCORERS,
            ):  # written again, or not: its labels may be gone
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(
                    path, folder / name
                )  # without its rights: the model may be read-only
        check_same(model, changed.digest)
        write_label_parts(folder, changed, index)
        add_note(
            folder / "README.md",
            f"{note} The model has {len(changed.labels):,} labels.",
        )
        write_info(folder, replace(changed.info, dev={}))
        if finish is not None:
            finish(folder)


def add_note(card: Path, note: str) -> None:
    """Add a line to the model card, if there is one, because its results are those of the original model."""
    if card.is_file():
        text = card.read_text(encoding="utf-8").rstrip("\n")
        card.write_text(
            f"{text}\n\nChanged after these results were measured: {note}\n",
            encoding="utf-8",
        )
