"""PyTorch's DistributedDataParallel: every rank has model and optimizer, and gradients are summed in buckets."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from xmtc.distributed.strategies.replicated import ReplicatedStrategy
from xmtc.distributed.strategies.settings import Precision


class DDPStrategy(ReplicatedStrategy):
    """DDP that sums gradients; by default DDP averages them."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self._module: DistributedDataParallel | None = None

    def _wrap(self, model: nn.Module) -> nn.Module:
        self._module = DistributedDataParallel(model, forward_sync_buffers=False)
        self._module.register_comm_hook(None, _sum_bucket)
        return self._module

    @contextmanager
    @override
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        if last or self._module is None:
            yield
            return
        with self._module.no_sync():
            yield

    @override
    def close(self) -> None:
        super().close()
        self._module = None


def _sum_bucket(_: None, bucket: dist.GradBucket) -> Future[Tensor]:  # pyright: ignore[reportPrivateImportUsage]
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.SUM, async_op=True)
    assert work is not None  # async_op
    return work.get_future().then(lambda future: future.value()[0])
