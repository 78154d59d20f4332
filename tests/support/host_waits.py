"""Counts where a host would wait for a GPU, without one: tensors on the CPU play those on the device.

A tensor is on the device if it was made from one that is. What reads a value, or has a shape that depends on values,
makes the host wait; so does a copy between host and device that is not `non_blocking`.
"""

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from xmtc.data.collate import Batch

READS = {
    "item",
    "tolist",
    "__bool__",
    "__float__",
    "__int__",
    "cpu",
    "numpy",
    "nonzero",
    "unique",
    "masked_select",
}


class HostWaits(TorchFunctionMode):
    """Notes each wait by the name of the function.

    Attributes:
        waits: how often each function made the host wait.
        mixed: functions that got a tensor of the host and one of the device, which a GPU refuses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.mixed: set[str] = set()
        self._backward = False
        self._storages: dict[
            int, Tensor
        ] = {}  # keeps the tensors alive, so that no other gets their memory

    def place(self, *tensors: Tensor) -> None:
        """Play that these are on the device."""
        dense = [
            tensor for tensor in tensors if not tensor.is_sparse and tensor.numel()
        ]
        self._storages |= {
            tensor.untyped_storage().data_ptr(): tensor for tensor in dense
        }

    def place_model(self, model: nn.Module) -> None:
        """Play that a model, with its label rows, is on the device."""
        self.place(*model.parameters(), *model.buffers())
        for module in model.modules():
            self.place(
                *(
                    value
                    for value in vars(module).values()
                    if isinstance(value, nn.Parameter)
                )
            )

    def moved(self, batch: Batch) -> Batch:
        """Copy a batch to the device."""
        tensors = {
            f.name: value.clone()
            for f in fields(batch)
            if isinstance(value := getattr(batch, f.name), Tensor)
        }
        self.place(*tensors.values())
        return replace(batch, **tensors, original=batch)

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is on the device, as all gradients are; a sparse tensor is one."""
        return (
            self._backward
            or tensor.is_sparse
            or tensor.untyped_storage().data_ptr() in self._storages
        )

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        if name == "backward":  # its own functions are to be seen too
            return self._run_backward(args[0])
        given = [
            x
            for x in tree_leaves((args, kwargs))
            if isinstance(x, Tensor) and x.numel()
        ]
        there = [x for x in given if self.holds(x)]
        if (
            name == "to"
            and not there
            and any(isinstance(x, torch.device) for x in tree_leaves((args, kwargs)))
        ):
            return self._copied(args[0], kwargs)
        found = function(*args, **kwargs)
        if there:
            self._note(name, args, [x for x in given if x.ndim and not self.holds(x)])
        if (there and name not in ("cpu", "numpy")) or kwargs.get("device") is not None:
            self.place(*filter(_is_tensor, tree_leaves(found)))
        return found.clone() if there and name == "cpu" else found

    def _run_backward(self, loss: Tensor) -> None:
        ones, self._backward = torch.ones_like(loss), True
        with self:
            run = (
                torch.autograd.Variable._execution_engine.run_backward
            )  # all above it would come back here
            run(
                (loss,),
                (ones,),
                False,
                False,
                (),
                allow_unreachable=True,
                accumulate_grad=True,
            )
        self._backward = False

    def _copied(self, tensor: Tensor, kwargs: Any) -> Tensor:
        self.waits["to"] += not kwargs.get("non_blocking", False)
        copy = tensor.clone()
        self.place(copy)
        return copy

    def _note(self, name: str, args: Any, others: list[Tensor]) -> None:
        indexed = name in ("__getitem__", "__setitem__") and any(
            _is_mask(x) for x in tree_leaves(args[1])
        )
        self.waits[name] += name in READS or (
            indexed and not (name == "__setitem__" and not _is_tensor(args[2]))
        )
        if others and name not in ("to", "copy_", "__get__", "__set__"):
            self.mixed.add(name)

    def total(self) -> int:
        """How often the host waited."""
        return self.waits.total()


def _is_mask(value: Any) -> bool:
    return _is_tensor(value) and value.dtype == torch.bool


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)
