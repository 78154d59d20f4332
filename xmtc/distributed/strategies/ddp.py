"""PyTorch's DistributedDataParallel: the model and its optimizer on every rank, gradients summed in buckets."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from xmtc.config.base import config
from xmtc.distributed.strategies.base import Precision
from xmtc.distributed.strategies.replicated import ReplicatedStrategy
from xmtc.distributed.strategy import Strategy


@config
class DDPConfig:
    """Every worker holds the whole model. The simplest that works while model and optimizer fit a worker."""

    kind: Literal["ddp"] = "ddp"
    bucket_mib: Annotated[float, Field(gt=0)] = 25.0
    """Gradients travel in buckets of this size, while the rest of the backward pass goes on."""
    find_unused_parameters: bool = False
    """Set it where a trained parameter takes no part in some step's loss; costs a walk over the graph every step."""

    def build(self, precision: Precision, device: torch.device) -> Strategy:
        """The strategy of this process, which must be in a process group."""
        return DDPStrategy(self, precision, device)


class DDPStrategy(ReplicatedStrategy):
    """Gradients are summed, not averaged as DDP does by itself."""

    def __init__(self, config: DDPConfig, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self._config = config
        self._module: DistributedDataParallel | None = None

    def _wrap(self, model: nn.Module) -> nn.Module:
        self._module = DistributedDataParallel(
            model,
            forward_sync_buffers=False,
            bucket_cap_mb=self._config.bucket_mib,
            find_unused_parameters=self._config.find_unused_parameters,
        )
        self._module.register_comm_hook(None, _sum_bucket)
        return self._module

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """See `Strategy.micro_batch`."""
        if last or self._module is None:
            yield
            return
        with self._module.no_sync():
            yield

    def close(self) -> None:
        """See `Strategy.close`."""
        super().close()
        self._module = None


def _sum_bucket(_: None, bucket: dist.GradBucket) -> Future[Tensor]:  # pyright: ignore[reportPrivateImportUsage]
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.SUM, async_op=True)
    assert work is not None  # async_op
    return work.get_future().then(lambda future: future.value()[0])
