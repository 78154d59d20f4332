"""How many workers train, where, and how they share the work."""

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

AtLeastOne = Annotated[int, Field(ge=1)]


def inside_ray_job() -> bool:
    """Whether this process was started by `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


@config
class DistributedConfig:
    """Workers, their resources, and the strategy that they share."""

    workers: Annotated[int, Field(ge=0)] | tuple[AtLeastOne, AtLeastOne] = 0
    """Training processes. 0 trains in this process, without Ray or a process group, and `strategy` is then not used:
    the losses are the same. `[2, 8]` trains with as many of 2 to 8 as the cluster has room for: training continues from
    its newest checkpoint with fewer when a node is lost, and with more when there is room again."""
    strategy: StrategyConfig | None = None
    """How workers share model, gradients and optimizer state. Absent: `ddp` for more than one worker."""
    precision: Precision = "fp32"
    """`bf16` computes in bfloat16 (autocast) where it is safe; trained weights, gradients and optimizer state stay
    float32 with every strategy, so that no setting depends on another."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads of each worker; PyTorch's choice when absent with 0 workers, otherwise `cpus_per_worker`."""
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0
    """CPUs that Ray reserves for each worker."""
    gpus_per_worker: Annotated[float, Field(ge=0, le=1)] = 0.0
    """GPUs that Ray reserves for each worker: 0 trains on CPU, 1 on a GPU each."""
    resources_per_worker: dict[str, float] = field(default_factory=dict)
    """Further Ray resources that each worker needs, by name, as the cluster defines them."""
    timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """Seconds after which an exchange between workers that one of them does not join fails."""
    max_failures: Annotated[int, Field(ge=-1)] = 3
    """How often Ray may restart the workers after one died, from the newest checkpoint; -1: without limit."""
    address: str | None = None
    """Ray cluster to join, such as `auto` or `ray://host:10001`; absent: a Ray of this run's own on this machine."""

    def __post_init__(self) -> None:
        """Refuse more workers than the strategy can train with, and bounds in the wrong order."""
        if self.fewest_workers > self.most_workers:
            raise ValueError(f"workers: [{self.fewest_workers}, {self.most_workers}]: give the smaller number first")
        most = self.strategy.most_workers if self.strategy else None
        if self.strategy and most is not None and self.most_workers > most:
            raise ValueError(
                f"strategy {self.strategy.kind} trains with {most} worker{'s' * (most > 1)} at most, not "
                f"workers={self.most_workers}; use ddp or deepspeed"
            )

    @property
    def most_workers(self) -> int:
        """Training processes when the cluster has room for all of them."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]

    @property
    def fewest_workers(self) -> int:
        """Training processes that are enough to train."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def starts_ray(self) -> bool:
        """Whether the run starts a Ray of its own on this machine; a Ray job joins the cluster that it was sent to."""
        return self.most_workers > 0 and not self.joins_cluster

    @property
    def joins_cluster(self) -> bool:
        """Whether the run uses a Ray cluster that was there before."""
        return self.address is not None or inside_ray_job()

    def chosen_strategy(self) -> StrategySettings:
        """The strategy that trains: always `single` with 0 workers."""
        if self.most_workers == 0:
            return SingleConfig()
        return self.strategy or (SingleConfig() if self.most_workers == 1 else DDPConfig())

    def torch_threads(self) -> int | None:
        """Threads for `torch.set_num_threads`, or None to leave PyTorch's choice."""
        if self.threads is not None:
            return self.threads
        return None if self.most_workers == 0 else max(1, int(self.cpus_per_worker))

    def build_strategy(self, device: "torch.device | None" = None) -> "Strategy":
        """The strategy of this process: call it in every worker, inside the process group.

        Args:
            device: of this worker; `default_device()` when absent.
        """
        from xmtc.distributed.process_group import default_device
        from xmtc.distributed.strategies.sharded import ShardedRowsStrategy

        strategy = self.chosen_strategy().build(self.precision, device or default_device())
        return ShardedRowsStrategy(strategy)
