"""Run a function on N gloo processes on this machine."""

import gc
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

# Imported once, by the server that all processes are forked from. The first optimizer step imports `torch._dynamo`, and
# DeepSpeed's start all that compiles.
TORCH = ["torch._dynamo", "torch._inductor.compile_fx"]
PRELOADED = [
    "xmtc.distributed.strategies.base",
    "xmtc.training.fine_tuning",
    "xmtc.planting.ranking_objective",
    *TORCH,
]


def run_gloo(
    function: Callable[..., Any],
    world_size: int,
    folder: Path,
    *args: Any,
    timeout_s: float = 120,
) -> list:
    """Call `function(*args)` in `world_size` fresh processes that form a gloo group.

    Args:
        function: of a module that can be imported; its results travel through files in `folder`, by torch.save.
        world_size: processes.
        folder: empty or the test's own.

    Returns:
        What `function` returned, in rank order.

    Raises:
        torch.multiprocessing.ProcessRaisedException: one of them failed, with its traceback.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "store").unlink(missing_ok=True)
    multiprocessing.set_forkserver_preload(PRELOADED)
    multiprocessing.start_processes(
        _worker,
        (function, world_size, folder, args, timeout_s),
        nprocs=world_size,
        start_method="forkserver",
    )
    return [
        torch.load(folder / f"rank{rank}.pt", weights_only=False)
        for rank in range(world_size)
    ]


def _worker(
    rank: int,
    function: Callable[..., Any],
    world_size: int,
    folder: Path,
    args: tuple[Any, ...],
    timeout_s: float,
) -> None:
    torch.set_num_threads(1)
    gc.freeze()  # DeepSpeed collects garbage often; what was imported is none, and a collection would copy its pages
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder.resolve() / 'store'}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    try:
        torch.save(function(*args), folder / f"rank{rank}.pt")
    except BaseException:
        traceback.print_exc()  # the parent shows the first failure only, often another rank's lost connection
        raise
    dist.destroy_process_group()
