"""A frozen transformer by OpenVINO: PyTorch's states in less time on a CPU. Suffixes: W windows, U tokens, D width."""

import sys
import warnings
from importlib import import_module
from typing import Any

import torch
from joblib import cpu_count
from torch import Tensor, nn
from transformers import PreTrainedModel

from xmtc.errors import ConfigError
from xmtc.models.encoders.transformers_calls import first_line, quiet

_LARGEST_ERROR = 1e-3  # of a state in float32, next to PyTorch's


class OpenVinoEngine:
    """Computes the states of a transformer whose weights do not change any more.

    Args:
        transformer: in evaluation mode.

    Raises:
        ConfigError: OpenVINO is not installed, or cannot read this architecture.
    """

    def __init__(self, transformer: PreTrainedModel) -> None:
        self._openvino = _openvino()
        self._compiled: dict[str, Any] = {}
        name = type(transformer).__name__
        with (
            torch.inference_mode(),
            torch.autocast("cpu", enabled=False),
            warnings.catch_warnings(action="ignore"),  # of what a trace makes constant
            quiet(),
        ):
            states, example = _States(transformer), _example(windows=2, tokens=16)
            try:
                self._converted = self._openvino.convert_model(
                    states, example_input=example
                )
            except Exception as error:  # the library has no error class
                raise _refusal(f"cannot read {name}: {first_line(error)}") from error
            ids_WU, mask_WU = _example(windows=3, tokens=21)
            difference_WUD = (self(ids_WU, mask_WU) - states(ids_WU, mask_WU)).abs()
            apart = float(difference_WUD[mask_WU > 0].max())
        if not apart <= _LARGEST_ERROR:
            raise _refusal(f"computes other states of {name}, up to {apart:.1g} apart")

    def __call__(self, ids_WU: Tensor, mask_WU: Tensor) -> Tensor:
        """Compute states (W, U, D) in float32, or in bfloat16 under autocast, and return them as float32."""
        precision = "bf16" if torch.is_autocast_enabled("cpu") else "f32"
        if precision not in self._compiled:
            threads = torch.get_num_threads()
            streams = max(1, cpu_count() // threads)  # for as many threads that predict
            options = {
                "INFERENCE_PRECISION_HINT": precision,
                "INFERENCE_NUM_THREADS": threads * streams,
                "NUM_STREAMS": streams,
                "ENABLE_CPU_PINNING": False,  # other processes may run here
            }
            compile_model = self._openvino.compile_model
            self._compiled[precision] = compile_model(self._converted, "CPU", options)
        request = self._compiled[precision].create_infer_request()  # one for a thread
        return torch.from_numpy(request.infer([ids_WU.numpy(), mask_WU.numpy()])[0])


class _States(nn.Module):
    """A transformer that returns its states alone, which OpenVINO can convert."""

    def __init__(self, transformer: PreTrainedModel) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, ids_WU: Tensor, mask_WU: Tensor) -> Tensor:
        return self.transformer(ids_WU, attention_mask=mask_WU).last_hidden_state


def _example(*, windows: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Make ids and a mask, with padding in the first window, so that a trace reads the mask."""
    ids_WU = torch.arange(windows * tokens).view(windows, tokens) % 7 + 1
    mask_WU = torch.ones_like(ids_WU)
    mask_WU[0, tokens // 2 :] = 0
    return ids_WU, mask_WU


def _openvino() -> Any:
    """Import OpenVINO without the package by which it would report its use to its makers."""
    sys.modules.setdefault("openvino_telemetry", None)  # pyright: ignore[reportArgumentType]
    try:
        return import_module("openvino")
    except ImportError as error:
        raise _refusal("is not installed: pip install 'xmtc[openvino]'") from error


def _refusal(reason: str) -> ConfigError:
    return ConfigError(f"model.encoder.engine: OpenVINO {reason}; or set it to torch")
