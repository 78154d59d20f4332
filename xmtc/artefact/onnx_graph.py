"""Write a classifier's encoder and head as an ONNX graph, and use the graph as a classifier.

Like `Batch`, the inputs are windows and the position of each document token in them, so long documents give the same
results as in PyTorch. The graph returns the head's logits; calibration and scorers are applied outside. Tables are
whole, and the numbers of windows, documents and tokens are free.

Suffixes: W windows, U window tokens, B documents, T document tokens, L labels.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.onnx import symbolic_helper

from xmtc.data.collate import Batch
from xmtc.errors import CheckpointError, ConfigError
from xmtc.models.classifier import Classifier
from xmtc.models.encoders.base import Encoder
from xmtc.models.heads.base import Head

INPUTS = ("input_ids", "attention_mask", "position", "mask")
_OPSET = 18
_WINDOW = "xmtc.window"
_PADDING_SCORE = -1e30
_SHAPES = {
    "input_ids": {0: "windows", 1: "window_tokens"},
    "attention_mask": {0: "windows", 1: "window_tokens"},
    "position": {0: "documents", 1: "tokens"},
    "mask": {0: "documents", 1: "tokens"},
    "logits": {0: "documents"},
}


class OnnxClassifier(Classifier):
    """A classifier that runs a graph from `write_graph` on the CPU. It only scores all labels.

    Args:
        path: path of the graph.
        labels: L.
        threads: threads per call. Default: onnxruntime's choice (one per core).

    Raises:
        ConfigError: onnxruntime is not installed.
        CheckpointError: the graph cannot be read, or xmtc did not write it.
    """

    gives_parts: ClassVar[bool] = False

    def __init__(self, path: Path, labels: int, threads: int | None = None) -> None:
        nn.Module.__init__(self)  # not that of `Classifier`: there are no parameters to group
        self._session = _open_session(path, threads)
        found = self._session.get_modelmeta().custom_metadata_map.get(_WINDOW)
        if found is None:
            raise CheckpointError(f"{path}: not written by `xmtc export`; export the model again")
        self.encoder = cast(Encoder, _Outside(int(found)))
        self.head = cast(Head, None)  # there is no head to explain logits
        self.labels, self.calibration = labels, None

    def forward(self, batch: Batch, shortlist: Tensor | None = None) -> Tensor:
        """Compute logits (B, L), float32.

        Raises:
            ConfigError: a shortlist: a graph scores all labels.
            CheckpointError: onnxruntime fails.
        """
        if shortlist is not None:
            raise ConfigError(
                "an ONNX model always scores all labels: leave out the shortlist, or use the PyTorch model"
            )
        tensors = (x.cpu().numpy() for x in graph_inputs(batch))
        logits_BL = torch.from_numpy(_run(self._session, dict(zip(INPUTS, tensors, strict=True))))
        return self.calibrated(logits_BL)


@dataclass(frozen=True)
class _Outside:
    """The properties of the encoder inside the graph."""

    window: int


def graph_inputs(batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Make a graph's inputs: ids and mask of the windows, position and mask of the documents' tokens."""
    position_BT = batch.position_BT
    if position_BT is None:  # windows and documents are the same thing
        position_BT = torch.arange(batch.mask_BT.numel()).view(batch.mask_BT.shape)
    return batch.input_ids_WU, batch.attention_mask_WU, position_BT, batch.mask_BT


def write_graph(classifier: Classifier, example: Batch, path: Path, *, int8: bool) -> None:
    """Write the graph of the classifier's encoder and head.

    Args:
        classifier: classifier in evaluation mode, on the CPU.
        example: any batch with windows. It is traced, so it must have more than one document and token.
        path: path of the file.
        int8: quantise weights to 8 bits, and activations dynamically.

    Raises:
        ConfigError: packages are missing, or ONNX has no operators for a part of the model.
    """
    _require("onnx")
    target = path.with_suffix(".float.onnx") if int8 else path
    with _exportable(classifier) as graph, warnings.catch_warnings():
        # The tracer warns about every Python number. The comparison with PyTorch checks that none was frozen.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                graph,
                graph_inputs(example),
                target,
                dynamo=False,
                input_names=list(INPUTS),
                output_names=["logits"],
                dynamic_axes=_SHAPES,
                opset_version=_OPSET,
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"this model cannot be exported to ONNX: {str(error).splitlines()[0]}") from error
    if int8:
        _quantize(target, path)
    _label(path, classifier.encoder.window)


def _quantize(source: Path, target: Path) -> None:
    _require("onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # hides advice on graphs that users of xmtc cannot follow
    try:
        # Weights use seven bits, because processors without VNNI overflow with eight.
        quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    finally:
        logging.disable(before)
    source.unlink()


def _label(path: Path, window: int) -> None:
    """Write the encoder's window size into the graph's metadata."""
    import onnx

    graph = onnx.load(path)
    onnx.helper.set_model_props(graph, {_WINDOW: str(window)})
    onnx.save(graph, path)


class _Graph(nn.Module):
    """Encoder and head as a function of tensors."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor, position_BT: Tensor, mask_BT: Tensor) -> Tensor:
        hidden = self.classifier.encoder(input_ids_WU, attention_mask_WU).flatten(0, 1)
        hidden_BTD = hidden.index_select(0, position_BT.flatten()).view(*position_BT.shape, -1)
        return self.classifier.head(hidden_BTD.masked_fill(~mask_BT.unsqueeze(2), 0), mask_BT)


@contextmanager
def _exportable(classifier: Classifier) -> Iterator[_Graph]:
    """Prepare the classifier: plain formulas replace the kernels and some of PyTorch's operators."""
    for name, formula in _FORMULAS.items():
        torch.onnx.register_custom_op_symbolic(name, formula, _OPSET)  # pyright: ignore[reportPrivateImportUsage]
    try:
        with classifier.encoder.for_export(), classifier.head.for_export(), torch.no_grad():
            yield _Graph(classifier).eval()
    finally:
        for name in _FORMULAS:
            torch.onnx.unregister_custom_op_symbolic(name, _OPSET)  # pyright: ignore[reportPrivateImportUsage]


@symbolic_helper.parse_args("v", "v", "v", "f")
def _rms_norm(graph: Any, x: Any, _shape: Any, gain: Any, epsilon: float) -> Any:
    """Compute the RMS norm over the last dimension: x / √(mean(x²) + ε)."""
    axis = graph.op("Constant", value_t=torch.tensor([-1]))
    mean = graph.op("ReduceMean", graph.op("Mul", x, x), axis, keepdims_i=1)
    root = graph.op("Sqrt", graph.op("Add", mean, graph.op("Constant", value_t=torch.tensor(epsilon))))
    normalised = graph.op("Div", x, root)
    return normalised if gain.node().mustBeNone() else graph.op("Mul", normalised, gain)


@symbolic_helper.parse_args("v", "v", "v", "v", "f", "b", "v", "b")
def _attention(
    graph: Any, query: Any, key: Any, value: Any, mask: Any, _dropout: float, causal: bool, scale: Any, grouped: bool
) -> Any:
    """Compute softmax(QKᵀ/√d + bias) V in four dimensions, with a finite bias from the mask.

    The exporter's formula uses -∞ and then searches all scores for NaN, which takes a fifth of a small transformer's
    time.
    """
    if causal or grouped:
        raise torch.onnx.errors.OnnxExporterError("causal or grouped attention")
    if scale.node().mustBeNone():
        factor = torch.tensor(query.type().sizes()[-1] ** -0.5)
    else:
        factor = scale.node().t("value").float()
    scaled = graph.op("Mul", query, graph.op("Constant", value_t=factor))
    scores = graph.op("MatMul", scaled, graph.op("Transpose", key, perm_i=[0, 1, 3, 2]))
    if not mask.node().mustBeNone():
        if mask.type().dtype() is torch.bool:
            levels = (graph.op("Constant", value_t=torch.tensor(level)) for level in (0.0, _PADDING_SCORE))
            mask = graph.op("Where", mask, *levels)
        scores = graph.op("Add", scores, mask)
    return graph.op("MatMul", graph.op("Softmax", scores, axis_i=-1), value)


_FORMULAS = {"aten::rms_norm": _rms_norm, "aten::scaled_dot_product_attention": _attention}


def _open_session(path: Path, threads: int | None) -> Any:
    _require("onnxruntime")
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, InvalidProtobuf, NoSuchFile

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4  # errors are raised and explained by xmtc
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, InvalidProtobuf, NoSuchFile) as error:
        raise CheckpointError(f"{path}: cannot be read ({str(error).splitlines()[0]}): export it again") from error


def _run(session: Any, tensors: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NotImplemented, RuntimeException

    try:
        return session.run(None, tensors)[0]
    except (Fail, InvalidArgument, NotImplemented, RuntimeException) as error:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise CheckpointError(
            f"the ONNX graph fails for {shapes}: {str(error).splitlines()[0]}; use the model that it was made from"
        ) from error


def _require(package: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        raise ConfigError(f"ONNX needs the package {package}: pip install 'xmtc[onnx]'") from error
