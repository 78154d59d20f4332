"""Settings of the workers: how many train, where, and with which strategy."""

import os
from dataclasses import field
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.distributed.strategies.config import DDPConfig, SingleConfig, StrategyConfig
from xmtc.distributed.strategies.settings import Precision, StrategySettings

if TYPE_CHECKING:
    import torch

    from xmtc.distributed.strategy import Strategy

_BFLOAT16_INSTRUCTIONS = (
    "avx512_bf16",
    "amx_bf16",
    "sve_bf16",
    "bf16",
)  # as PyTorch names them
AtLeastOne = Annotated[int, Field(ge=1)]


def inside_ray_job() -> bool:
    """Whether this process was started by `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def native_bfloat16(*, gpu: bool) -> bool:
    """Whether this machine's GPU, or else its CPU, has instructions for products in bfloat16.

    Without them bfloat16 is emulated, and slower than float32.
    """
    import torch

    if gpu:
        return torch.cuda.get_device_capability()[0] >= 8
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in _BFLOAT16_INSTRUCTIONS)


def default_device() -> "torch.device":
    """Return the GPU of this process (from LOCAL_RANK, which launchers set), or the CPU if there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", local_rank % torch.cuda.device_count())


@config
class DistributedConfig:
    """Workers, their resources, and their strategy."""

    workers: Annotated[int, Field(ge=0)] | tuple[AtLeastOne, AtLeastOne] = 0
    """Number of training processes. 0 trains in this process, without Ray. `[2, 8]` trains with as many of 2 to 8
    workers as the cluster has room for, and continues from the newest checkpoint when that changes."""
    strategy: StrategyConfig | None = None
    """How workers share model, gradients and optimizer state. Default: `ddp` for more than one worker."""
    precision: Precision = "fp32"
    """`bf16` computes in bfloat16 (autocast) where this is safe. Trained weights, gradients and optimizer state stay
    float32 with every strategy. `auto`: `bf16` if this machine has instructions for it, or workers have GPUs."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads of each worker. Default: `cpus_per_worker`; with 0 workers, PyTorch's choice."""
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0
    """CPUs that Ray reserves for each worker."""
    gpus_per_worker: Annotated[float, Field(ge=0, le=1)] = 0.0
    """GPUs that Ray reserves for each worker: 0 trains on the CPU, 1 on one GPU per worker."""
    resources_per_worker: dict[str, float] = field(default_factory=dict)
    """Custom Ray resources that each worker needs, by the names that the cluster defines."""
    timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """Seconds after which an exchange between workers fails because one of them has not joined it."""
    max_failures: Annotated[int, Field(ge=-1)] = 3
    """How often Ray may restart the workers from the newest checkpoint after one died; -1: no limit."""
    address: str | None = None
    """Ray cluster to join, such as `auto` or `ray://host:10001`. Default: the run starts Ray on this machine."""

    def __post_init__(self) -> None:
        """Refuse more workers than the strategy supports, and bounds in the wrong order; choose the precision."""
        if self.precision == "auto":  # a run's own configuration says what was chosen
            has_bfloat16 = self.gpus_per_worker > 0 or native_bfloat16(gpu=self.on_gpu)
            object.__setattr__(self, "precision", "bf16" if has_bfloat16 else "fp32")
        if self.min_workers > self.max_workers:
            raise ValueError(
                f"workers: [{self.min_workers}, {self.max_workers}]: give the smaller number first"
            )
        limit = None if self.strategy is None else self.strategy.max_workers
        if self.strategy is not None and limit is not None and self.max_workers > limit:
            limit_in_words = "1 worker" if limit == 1 else f"{limit} workers"
            raise ValueError(
                f"strategy {self.strategy.kind} supports at most {limit_in_words}, not workers={self.max_workers}; "
                "use ddp or deepspeed"
            )

    @property
    def max_workers(self) -> int:
        """Largest number of training processes, used if the cluster has room for all of them."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]

    @property
    def min_workers(self) -> int:
        """Smallest number of training processes."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def starts_ray(self) -> bool:
        """Whether the run starts Ray on this machine. A Ray job joins the cluster that it was submitted to."""
        return self.max_workers > 0 and not self.joins_cluster

    @property
    def on_gpu(self) -> bool:
        """Whether training computes on a GPU: a run in this process takes one that is there."""
        return self.gpus_per_worker > 0 or (
            self.max_workers == 0 and default_device().type == "cuda"
        )

    @property
    def joins_cluster(self) -> bool:
        """Whether the run uses an existing Ray cluster."""
        return self.address is not None or inside_ray_job()

    def chosen_strategy(self) -> StrategySettings:
        """Return the strategy to train with; always `single` with 0 workers."""
        if self.max_workers == 0:
            return SingleConfig()
        if self.strategy is not None:
            return self.strategy
        return SingleConfig() if self.max_workers == 1 else DDPConfig()

    def torch_threads(self) -> int | None:
        """Return the threads for `torch.set_num_threads`, or None to keep PyTorch's default."""
        if self.threads is not None:
            return self.threads
        if self.max_workers == 0:
            return None
        return max(1, int(self.cpus_per_worker))

    def build_strategy(self, device: "torch.device | None" = None) -> "Strategy":
        """Build the strategy of this process. Call it in every worker, inside the process group.

        Args:
            device: device of this worker. Default: `default_device()`.
        """
        from xmtc.distributed.strategies.sharded import ShardedRowsStrategy

        strategy = self.chosen_strategy().build(
            self.precision, device or default_device()
        )
        return ShardedRowsStrategy(strategy)
