"""Export encoder and head of a model as an ONNX graph, for onnxruntime.

config.json       copied from the model, with the checksums of these files
model.onnx        the graph
tokenizer/  labels.arrow  thresholds.json    copied from the model
calibration.safetensors  copied from the model, if it has one; applied to the graph's logits
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from xmtc.artefact.export import (
    CALIBRATION,
    SCORERS,
    ModelParts,
    load_model,
    load_parts,
    read_calibration,
)
from xmtc.artefact.info import ModelInfo, write_info
from xmtc.artefact.onnx_graph import OnnxClassifier, write_graph
from xmtc.artefact.output import GRAPH, check_output, replacing
from xmtc.data.collate import Batch, Collator
from xmtc.data.documents import UnlabelledDocuments
from xmtc.data.sampler import MicroBatch
from xmtc.errors import CheckpointError, ConfigError
from xmtc.models.classifier import Classifier

TOLERANCE = 1e-4
"""Largest difference between a logit of the float graph and PyTorch's, relative to the largest logit or 1."""
_COPIED = ("tokenizer", "labels.arrow", "thresholds.json", CALIBRATION, SCORERS)


def export_onnx(model: Path, output: Path, *, int8: bool) -> float:
    """Write an exported model in ONNX form, replacing an earlier one at `output`.

    The graph is compared with PyTorch on documents of random tokens, with lengths up to several windows.

    Args:
        model: the `model` folder of a run.
        output: directory to write; see `check_output`.
        int8: quantise weights to 8 bits, and activations dynamically.

    Returns:
        The largest difference of a logit, relative to the largest logit or 1.

    Raises:
        CheckpointError: the model cannot be read, or the graph's results differ.
        ConfigError: a part of the model cannot be exported to ONNX, or `output` holds something else.
    """
    if is_onnx(model):
        raise ConfigError(f"{model}: this is already an ONNX model; give the `model` folder of a run")
    check_output(output, model, GRAPH)
    parts = load_model(model)
    if parts.ensemble is not None and parts.ensemble.needs_states:
        raise ConfigError(
            f"{model}: its scorers read the encoder's states, which an ONNX graph does not return; train without them"
        )
    with replacing(output) as temporary:
        for name in (name for name in _COPIED if (model / name).exists()):
            copy = shutil.copytree if (model / name).is_dir() else shutil.copy2
            copy(model / name, temporary / name)
        window = parts.classifier.encoder.window
        examples = [random_batch(parts, lengths) for lengths in ([19, 31, 7], [1], [window + 30, 3 * window, 11])]
        write_graph(parts.classifier, examples[0], temporary / GRAPH, int8=int8)
        graph = _read_graph(temporary, parts.info, len(parts.labels))
        difference = max(_difference(parts.classifier, graph, batch) for batch in examples)
        if not int8 and difference > TOLERANCE:
            raise CheckpointError(
                f"{output}: not written, because the graph's logits differ from PyTorch's by {difference:.1e}"
            )
        write_info(temporary, parts.info)
    return difference


def load_onnx(directory: Path, *, threads: int | None = None) -> ModelParts:
    """Read a model in ONNX form, after checking every file against its checksum.

    Args:
        directory: directory of the model.
        threads: threads per batch. Default: one per core.

    Raises:
        CheckpointError: a file is missing, damaged or has the wrong format.
        ConfigError: onnxruntime is not installed.
    """
    return load_parts(directory, lambda info, labels: _read_graph(directory, info, labels, threads))


def load_any(directory: Path, *, threads: int | None = None) -> ModelParts:
    """Load a model in either form: `load_onnx` or `load_model`."""
    return load_onnx(directory, threads=threads) if is_onnx(directory) else load_model(directory)


def is_onnx(directory: Path) -> bool:
    """Whether the directory has a model in ONNX form."""
    return (directory / GRAPH).is_file()


def _read_graph(directory: Path, info: ModelInfo, labels: int, threads: int | None = None) -> OnnxClassifier:
    graph = OnnxClassifier(directory / GRAPH, labels, threads)
    read_calibration(graph, directory)
    return graph


def random_batch(parts: ModelParts, lengths: Sequence[int]) -> Batch:
    """Make documents of random tokens, of these lengths, or at most the model's maximum."""
    lengths = [min(length, parts.info.max_length) for length in lengths]
    generator, vocabulary = np.random.default_rng(0), parts.info.vocab_size
    ids = [generator.integers(vocabulary, size=length, dtype=np.int32) for length in lengths]
    window, overlap = parts.classifier.encoder.window, parts.info.model.overlap
    rows = np.arange(len(lengths))
    return Collator(UnlabelledDocuments(ids), parts.tokenizer, window=window, overlap=overlap)(
        MicroBatch(rows, np.ones(len(rows), np.float32))
    )


def _difference(classifier: Classifier, graph: Classifier, batch: Batch) -> float:
    with torch.inference_mode():
        expected: Tensor = classifier(batch)
        return float((graph(batch) - expected).abs().max() / expected.abs().max().clamp(min=1))
