"""The settings of the built-in strategies, and the family of strategies."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members
from xmtc.distributed.strategies.settings import (
    Demand,
    Precision,
    StrategySettings,
    TrainingBytes,
)

if TYPE_CHECKING:
    import torch

    from xmtc.distributed.strategy import Strategy

# DeepSpeed's keys for what this section sets.
_MANAGED = {"stage", "offload_optimizer", "offload_param"}
_REFUSAL_OF_QUANTIZED = (
    "distributed.strategy.stage: 3 exclude each other: ZeRO-3 partitions quantised weights wrongly, and trains wrongly "
    "without an error; use stage 2"
)
_BUCKET = (
    500_000_000  # numbers in DeepSpeed's default buffer for the exchange of gradients
)


@config
class SingleConfig(StrategySettings):
    """Trains in a single process."""

    kind: Literal["single"] = "single"

    @property
    @override
    def max_workers(self) -> int | None:
        return 1

    @override
    def build(self, precision: Precision, device: "torch.device") -> "Strategy":
        from xmtc.distributed.strategies.replicated import SingleStrategy

        return SingleStrategy(precision, device)


@config
class DDPConfig(StrategySettings):
    """Every worker holds the whole model. The simplest choice if model and optimizer fit in a worker's memory."""

    kind: Literal["ddp"] = "ddp"

    @override
    def build(self, precision: Precision, device: "torch.device") -> "Strategy":
        from xmtc.distributed.strategies.replicated import DDPStrategy

        return DDPStrategy(precision, device)


@config
class DeepSpeedConfig(StrategySettings):
    """ZeRO, for models or optimizers that do not fit in a worker's memory."""

    compiles: ClassVar[bool] = True  # its collectives
    kind: Literal["deepspeed"] = "deepspeed"
    stage: Literal[0, 1, 2, 3] = 2
    """0 partitions nothing, 1 the optimizer state, 2 also gradients, 3 also parameters (including frozen ones)."""
    offload_optimizer: Literal["cpu"] | None = None
    """Where optimizer state is kept and updated: `cpu` (stages 1 to 3)."""
    offload_parameters: Literal["cpu"] | None = None
    """Where parameters are kept while they are not in use (stage 3)."""
    zero_optimization: dict[str, Any] = field(default_factory=dict)
    """Further keys of this section of DeepSpeed's configuration, such as `{overlap_comm: true}`; xmtc sets stage and
    offload."""

    def __post_init__(self) -> None:
        """Refuse keys that this section sets, and offloading that the stage does not support."""
        managed = sorted(_MANAGED & self.zero_optimization.keys())
        if managed:
            raise ValueError(
                f"zero_optimization must not set {', '.join(managed)}: stage, offload_optimizer and "
                "offload_parameters of distributed.strategy do"
            )
        if self.offload_optimizer and self.stage == 0:
            raise ValueError("offload_optimizer needs stage 1, 2 or 3")
        if self.offload_parameters and self.stage != 3:
            raise ValueError("offload_parameters needs stage 3")

    @property
    @override
    def partitions_parameters(self) -> bool:
        return self.stage == 3

    @override
    def refusals(self) -> Mapping[Demand, str]:
        """Stage 3 adds some."""
        if self.stage < 3:
            return {}
        return {
            Demand.LABEL_TEXTS: (
                "distributed.strategy.stage: 3 exclude each other: label texts go through the encoder outside the "
                "module that gathers its parameters; use stage 2"
            ),
            Demand.QUANTIZED_WEIGHTS: _REFUSAL_OF_QUANTIZED,
        }

    @override
    def weight_bytes(self, size: float, workers: int) -> float:
        if self.offload_parameters:
            return 0.0
        return super().weight_bytes(size, workers)

    @override
    def training_bytes(self, trained: int, workers: int) -> TrainingBytes:
        """From stage 1, AdamW also updates a flat copy of the parameters."""
        if self.stage == 0:
            return super().training_bytes(trained, workers)
        share = trained / workers
        overlaps = self.zero_optimization.get("overlap_comm", self.stage == 3)
        numbers_in_bucket = self.zero_optimization.get("reduce_bucket_size", _BUCKET)
        buffers = 2 if overlaps else 1
        return TrainingBytes(
            gradients=4.0 * (share if self.stage >= 2 else trained),
            optimizer_state=0.0 if self.offload_optimizer else 12.0 * share,
            exchange_buffers=4.0 * numbers_in_bucket * buffers,
        )

    @override
    def build(self, precision: Precision, device: "torch.device") -> "Strategy":
        from xmtc.distributed.strategies.deepspeed import (
            ZeroStage0Strategy,
            ZeroStrategy,
        )
        from xmtc.distributed.strategies.deepspeed_support import import_deepspeed

        import_deepspeed(device)
        strategy = ZeroStage0Strategy if self.stage == 0 else ZeroStrategy
        return strategy(self.stage, self.engine_config(precision), precision, device)

    @override
    def loading(self, precision: Precision) -> AbstractContextManager[object]:
        """Under stage 3, each worker keeps its share."""
        if self.stage < 3:
            return nullcontext()
        from xmtc.distributed.zero3 import Loading

        return Loading(self.engine_config(precision)).active()

    def engine_config(self, precision: Precision) -> dict[str, Any]:
        """Make DeepSpeed's configuration."""
        zero: dict[str, Any] = {**self.zero_optimization, "stage": self.stage}
        if self.offload_optimizer:
            zero["offload_optimizer"] = {"device": self.offload_optimizer}
        if self.offload_parameters:
            zero["offload_param"] = {"device": self.offload_parameters}
        return {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "zero_optimization": zero,
            "zero_force_ds_cpu_optimizer": False,
            # Treat no module as safe for exchanging gradients or parameters in bfloat16: sums stay in float32.
            "torch_autocast": {
                "enabled": precision == "bf16",
                "dtype": "bfloat16",
                "lower_precision_safe_modules": [],
            },
        }


StrategyConfig = Annotated[
    StrategySettings,
    Members("xmtc.strategies", SingleConfig, DDPConfig, DeepSpeedConfig),
]
