"""An exported model whose encoder and head are an ONNX graph, for onnxruntime.

config.json       as of the model it was made from, with the checksums of these files
model.onnx        the graph
tokenizer/  labels.arrow  thresholds.json    as of that model
lexical.safetensors  calibration.safetensors  as of that model, where it has them: they join the graph's logits
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.data.collate import Batch, Collator
from xmtc.data.corpus import Split
from xmtc.data.sampler import MicroBatch
from xmtc.errors import CheckpointError, ConfigError
from xmtc.models.classifier import Classifier
from xmtc.models.export import (
    CALIBRATION,
    LEXICAL,
    LoadedModel,
    ModelInfo,
    load_model,
    load_parts,
    read_fused,
    write_config,
)
from xmtc.models.onnx_graph import OnnxClassifier, write_graph
from xmtc.models.output import GRAPH, check_output, replacing

TOLERANCE = 1e-4
"""Largest difference between a logit of the float graph and PyTorch's, relative to the largest logit or 1."""
_COPIED = ("tokenizer", "labels.arrow", "thresholds.json", LEXICAL, CALIBRATION)


def export_onnx(model: Path, output: Path, *, int8: bool) -> float:
    """Write the ONNX form of an exported model; an earlier one at `output` is replaced.

    The graph is run against PyTorch on documents of random tokens, of lengths up to several windows.

    Args:
        model: the `model` folder of a run.
        output: directory to write; see `check_output`.
        int8: quantise the weights to 8 bits, and activations as they come.

    Returns:
        The largest difference of a logit, relative to the largest logit or 1.

    Raises:
        CheckpointError: the model cannot be read, or the graph does not compute what it does.
        ConfigError: the model has no ONNX graph, and says which part has none; or something else is at `output`.
    """
    if is_onnx(model):
        raise ConfigError(f"{model}: is an ONNX model already; give the `model` folder of a run")
    check_output(output, model, GRAPH)
    parts = load_model(model)
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
                f"{output}: the graph's logits differ from PyTorch's by {difference:.1e}: not written"
            )
        write_config(temporary, parts.info)
    return difference


def load_onnx(directory: Path, *, threads: int | None = None) -> LoadedModel:
    """Read what `export_onnx` wrote, after checking every file against its checksum.

    Args:
        directory: where it is.
        threads: of one batch; one a core when None.

    Raises:
        CheckpointError: a file is missing, damaged or of another kind.
        ConfigError: onnxruntime is not installed.
    """
    return load_parts(directory, lambda info, labels: _read_graph(directory, info, labels, threads))


def load_any(directory: Path, *, threads: int | None = None) -> LoadedModel:
    """`load_onnx` or `load_model`, by what is there."""
    return load_onnx(directory, threads=threads) if is_onnx(directory) else load_model(directory)


def is_onnx(directory: Path) -> bool:
    """Whether there is the ONNX form of a model."""
    return (directory / GRAPH).is_file()


def _read_graph(directory: Path, info: ModelInfo, labels: int, threads: int | None = None) -> OnnxClassifier:
    graph = OnnxClassifier(directory / GRAPH, labels, threads)
    read_fused(graph, directory, info)
    return graph


class _RandomDocuments:
    """Documents of random tokens that stand in for a corpus split."""

    def __init__(self, lengths: Sequence[int], vocab_size: int) -> None:
        generator = np.random.default_rng(0)
        self._ids = [generator.integers(vocab_size, size=length, dtype=np.int32) for length in lengths]

    def tokens(self, document: int) -> NDArray[np.int32]:
        """Content tokens of a document."""
        return self._ids[document]

    def label_ids(self, document: int) -> NDArray[np.int32]:
        """None are known."""
        del document
        return np.empty(0, np.int32)


def random_batch(parts: LoadedModel, lengths: Sequence[int]) -> Batch:
    """Documents of random tokens, of these lengths or the model's longest."""
    lengths = [min(length, parts.info.max_length) for length in lengths]
    documents = cast(Split, _RandomDocuments(lengths, parts.info.vocab_size))  # a collator reads no more than this
    window, overlap = parts.classifier.encoder.window, parts.info.model.overlap
    rows = np.arange(len(lengths))
    return Collator(documents, parts.tokenizer, window=window, overlap=overlap)(
        MicroBatch(rows, np.ones(len(rows), np.float32))
    )


def _difference(classifier: Classifier, graph: Classifier, batch: Batch) -> float:
    with torch.inference_mode():
        expected: Tensor = classifier(batch)
        return float((graph(batch) - expected).abs().max() / expected.abs().max().clamp(min=1))
