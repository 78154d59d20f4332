"""The exported model: a directory of safetensors, JSON and Arrow; no pickle, and no code that loading would run.

config.json          format, the model's configuration, task, sizes, identity of the backbone, checksums
head.safetensors     the head
lexical.safetensors  the lexical branch, where there is one
adapter/             PEFT layout, where there is LoRA
encoder/             the whole encoder, where it is not simply a pretrained model that can be had again
tokenizer/           Hugging Face layout
labels.arrow         label, name, train_count, parents; row number = label id
calibration.safetensors  scale and offset of each label's logit, where they were fitted
thresholds.json      from which probability on a label counts as predicted
README.md            model card
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from xmtc.config.base import config
from xmtc.data.labels import LabelTable
from xmtc.data.tokenizer import load_pretrained
from xmtc.errors import CheckpointError, ConfigError
from xmtc.files import file_sha256
from xmtc.models.calibration import Calibration
from xmtc.models.classifier import Classifier, ModelConfig
from xmtc.models.encoders import EncoderConfig, HuggingFaceConfig, backbone_in
from xmtc.models.encoders.hugging_face import HuggingFaceBackbone, quiet
from xmtc.models.encoders.maxpool import LayerMixConfig, MaxPoolConfig
from xmtc.models.lexical import Lexical
from xmtc.models.model_card import model_card
from xmtc.models.output import EDITABLE, FORMAT, HEAD, replacing

FORMAT_VERSION = 1
LEXICAL, CALIBRATION = "lexical.safetensors", "calibration.safetensors"


@config
class ModelInfo:
    """What an exported model is, beside its weights."""

    name: str
    """The run that made it."""
    model: ModelConfig
    """Encoder and head."""
    vocab_size: Annotated[int, Field(ge=1)]
    """Token ids of the tokenizer."""
    max_length: Annotated[int, Field(ge=1)]
    """Content tokens that a document is cut to."""
    task: Literal["multi_label", "single_label"] = "multi_label"
    """Whether a document has any number of labels (sigmoid) or exactly one (softmax)."""
    corpus: str = ""
    """Fingerprint of the corpus it was trained on."""


@dataclass(frozen=True)
class LoadedModel:
    """The parts of an exported model, on the CPU, in evaluation mode.

    Attributes:
        threshold: from which probability on a label counts as predicted.
        thresholds_L: float32, the labels' own thresholds, or None.
    """

    info: ModelInfo
    classifier: Classifier
    tokenizer: PreTrainedTokenizerFast
    labels: LabelTable
    threshold: float
    thresholds_L: NDArray[np.float32] | None

    def limits(self) -> NDArray[np.float32] | None:
        """From which probability on each label counts as predicted, (L,); None where that is the best one alone."""
        if self.info.task == "single_label":
            return None
        if self.thresholds_L is not None:
            return self.thresholds_L
        return np.full(len(self.labels), self.threshold, np.float32)


def export_model(
    directory: Path,
    classifier: Classifier,
    trained: Mapping[str, Tensor],
    info: ModelInfo,
    *,
    labels: LabelTable,
    tokenizer: PreTrainedTokenizerBase,
    threshold: float = 0.5,
    thresholds_L: NDArray[np.float32] | None = None,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
) -> Path:
    """Write the exported model under a temporary name, and publish it by rename; an earlier one is replaced.

    Args:
        directory: the model directory.
        classifier: where the tensors that `trained` lacks are taken from.
        trained: full tensors (as a strategy gathers them) by the classifier's parameter names. Without LoRA, an
            `encoder.` tensor among them makes the whole encoder part of the export.
        info: configuration and sizes.
        labels: the corpus's labels.
        tokenizer: the corpus's tokenizer.
        threshold: from which probability on a label counts as predicted.
        thresholds_L: the labels' own.
        metrics: split → metric → value, for the model card.

    Raises:
        CheckpointError: a tensor is empty (a shard of ZeRO-3 that was not gathered), or the disk refuses.
    """
    with replacing(Path(directory)) as temporary:
        has_encoder = _write_weights(temporary, classifier, trained)
        if classifier.lexical is not None:
            classifier.lexical.save(temporary / LEXICAL)
        if classifier.calibration is not None:
            classifier.calibration.save(temporary / CALIBRATION)
        tokenizer.save_pretrained(temporary / "tokenizer")
        labels.save(temporary / "labels.arrow")
        write_thresholds(temporary / "thresholds.json", threshold, thresholds_L)
        contents = "the whole model" if has_encoder else "what was trained; the backbone is loaded by its name"
        backbone = backbone_in(classifier.encoder)
        base = None if backbone is None else backbone.name
        card = model_card(info, classifier, len(labels), base=base, contents=contents, metrics=metrics or {})
        (temporary / "README.md").write_text(card)
        write_config(temporary, info)
    return Path(directory)


def load_model(directory: Path) -> LoadedModel:
    """Read an exported model, after checking every file against its checksum.

    Raises:
        CheckpointError: a file is missing, damaged or of another kind; names it.
    """
    directory = Path(directory)
    return load_parts(directory, lambda info, labels: _read_classifier(directory, info, labels))


def load_tokenizer(directory: Path) -> tuple[PreTrainedTokenizerFast, int]:
    """The tokenizer of an exported model, and the content tokens that its documents are cut to.

    Raises:
        CheckpointError: the model's configuration is missing or of another kind.
    """
    return load_pretrained(str(directory / "tokenizer")), _read_config(directory).max_length


def load_parts(directory: Path, read_classifier: Callable[[ModelInfo, int], Classifier]) -> LoadedModel:
    """Read a model whose classifier is made by `read_classifier`, given its configuration and number of labels."""
    info = _read_config(directory)
    labels = LabelTable.load(directory / "labels.arrow")
    threshold, thresholds_L = read_thresholds(directory / "thresholds.json", len(labels))
    classifier = read_classifier(info, len(labels))
    tokenizer = load_pretrained(str(directory / "tokenizer"))
    return LoadedModel(info, classifier.eval(), tokenizer, labels, threshold, thresholds_L)


def _write_weights(folder: Path, classifier: Classifier, trained: Mapping[str, Tensor]) -> bool:
    """Write head, adapter and encoder; returns whether the whole encoder was written."""
    tensors = classifier.state_dict() | dict(trained)
    save_file(_part(tensors, "head."), folder / HEAD)
    encoder = classifier.encoder
    if not isinstance(encoder, HuggingFaceBackbone):
        (folder / "encoder").mkdir()
        if backbone := backbone_in(encoder):
            backbone.transformer.config.save_pretrained(folder / "encoder")
        save_file(_part(tensors, "encoder."), folder / "encoder" / "model.safetensors")
        return True
    adapted = isinstance(encoder.model, PeftModel)
    if isinstance(encoder.model, PeftModel):
        _write_adapter(folder / "adapter", encoder.model, tensors, encoder.name)
    changed = any(name.startswith("encoder.") and "lora_" not in name for name in trained)
    if changed or encoder.name is None:
        plain = {name: tensor for name, tensor in tensors.items() if "lora_" not in name}
        weights = _part(plain, "encoder.model.base_model.model." if adapted else "encoder.model.")
        weights = {name.replace(".base_layer.", "."): tensor for name, tensor in weights.items()}
        with quiet():
            encoder.transformer.save_pretrained(folder / "encoder", state_dict=weights)
        return True
    return False


def _write_adapter(folder: Path, model: PeftModel, tensors: Mapping[str, Tensor], base: str | None) -> None:
    lora = {name: tensor for name, tensor in tensors.items() if "lora_" in name}
    adapter = get_peft_model_state_dict(model, state_dict=_part(lora, "encoder.model."), save_embedding_layers=False)
    folder.mkdir()
    save_file(adapter, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = replace(model.peft_config["default"], base_model_name_or_path=base, inference_mode=True)
    settings.save_pretrained(str(folder))


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name begins with `prefix`, without it, whole and on the CPU."""
    part = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    for name, tensor in part.items():
        if tensor.numel() == 0:
            raise CheckpointError(f"cannot export {prefix}{name}: it is empty here; gather it from the ranks first")
    return {name: tensor.detach().cpu().contiguous() for name, tensor in part.items()}


def write_thresholds(path: Path, threshold: float, thresholds_L: NDArray[np.float32] | None) -> None:
    """Write `thresholds.json`."""
    per_label = None if thresholds_L is None else [float(str(t)) for t in thresholds_L]  # the shortest decimals
    path.write_text(json.dumps({"global": threshold, "per_label": per_label}) + "\n")


def write_config(folder: Path, info: ModelInfo) -> None:
    """Write `config.json`, with the checksums of the files that are in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **TypeAdapter(ModelInfo).dump_python(info, mode="json"),
        "sha256": {name: file_sha256(path) for name, path in names.items() if name not in EDITABLE},
    }
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n")


def _read_config(directory: Path) -> ModelInfo:
    path = directory / "config.json"
    content = _read_json(path)
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise CheckpointError(f"{path}: not a model exported by xmtc; give the `model` folder of a run")
    version = content.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{path}: format version {version}, this xmtc reads {FORMAT_VERSION}: install its xmtc")
    for name, expected in content.pop("sha256", {}).items():
        if not (directory / name).is_file():
            raise CheckpointError(f"{directory / name}: missing: copy the whole model folder, or export it again")
        if file_sha256(directory / name) != expected:
            raise CheckpointError(f"{directory / name}: damaged (checksum differs): copy it, or export it, again")
    try:
        return TypeAdapter(ModelInfo).validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(f"{path}: {place}: {first['msg']}") from error


def _read_classifier(directory: Path, info: ModelInfo, labels: int) -> Classifier:
    folder = directory / "encoder"
    model = replace(info.model, encoder=_with_own_weights(info.model.encoder, folder))
    try:
        classifier = model.build(info.vocab_size, labels)
    except ConfigError as error:
        raise CheckpointError(f"{directory}/config.json: {error}") from error
    _load_weights(classifier.head, directory / HEAD)
    read_fused(classifier, directory, info)
    encoder = classifier.encoder
    if not isinstance(encoder, HuggingFaceBackbone):
        _load_weights(encoder, folder / "model.safetensors")
    elif isinstance(encoder.model, PeftModel):
        _load_adapter(encoder.model, directory / "adapter" / "adapter_model.safetensors")
    return classifier


def _with_own_weights(encoder: EncoderConfig, folder: Path) -> EncoderConfig:
    """The encoder, made of what the export holds of it in place of the pretrained backbone that its name stands for."""
    if isinstance(encoder, HuggingFaceConfig) and folder.is_dir():
        return replace(encoder, name=str(folder), from_config=None)
    if isinstance(encoder, MaxPoolConfig | LayerMixConfig) and isinstance(encoder.base, HuggingFaceConfig):
        shape = folder / "config.json"
        if shape.is_file() and not encoder.base.quantize:  # weights in 4 or 8 bits are made of pretrained ones only
            return replace(encoder, base=replace(encoder.base, from_config=_read_json(shape)))
    return encoder


def read_fused(classifier: Classifier, directory: Path, info: ModelInfo) -> None:
    """Load what joins the head's logits, where the model has it: lexical branch and calibration."""
    if info.model.lexical is not None:
        classifier.lexical_share = info.model.lexical.share
        classifier.lexical = Lexical.load(directory / LEXICAL)
    if (directory / CALIBRATION).is_file():
        classifier.calibration = Calibration.load(directory / CALIBRATION, classifier.labels)


def _load_weights(module: Any, path: Path) -> None:
    try:
        module.load_state_dict(_read_tensors(path))
    except RuntimeError as error:
        raise CheckpointError(f"{path}: does not fit its config.json: {str(error).splitlines()[-1].strip()}") from error


def _load_adapter(model: PeftModel, path: Path) -> None:
    adapter = _read_tensors(path)
    wanted = {name: t.shape for name, t in get_peft_model_state_dict(model, save_embedding_layers=False).items()}
    if wanted != {name: tensor.shape for name, tensor in adapter.items()}:
        raise CheckpointError(f"{path}: holds other adapters than its config.json says")
    set_peft_model_state_dict(model, adapter)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"{path}: missing: copy the whole model folder, or export it again")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged ({error}): copy it, or export it, again") from error


def read_thresholds(path: Path, labels: int) -> tuple[float, NDArray[np.float32] | None]:
    """The global threshold, and float32 (L,) the labels' own, or None.

    Raises:
        CheckpointError: the file is missing or damaged, or of another model.
    """
    content = _read_json(path)
    try:
        threshold, per_label = float(content["global"]), content["per_label"]
        thresholds_L = None if per_label is None else np.asarray(per_label, np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f'{path}: must be {{"global": 0.5, "per_label": null or a list}}') from error
    if thresholds_L is not None and thresholds_L.shape != (labels,):
        raise CheckpointError(f"{path}: per_label holds {thresholds_L.size} thresholds, the model has {labels} labels")
    return threshold, thresholds_L


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: missing; give the `model` folder of a run") from error
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}): copy it, or export it, again") from error
