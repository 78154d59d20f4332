"""Simulate one micro-batch to find its peak memory, without weights and on any machine.

PyTorch's fake tensors run the real forward and backward passes, including gradient checkpointing and LoRA, without
computing anything. The bytes of all live tensors are counted.

Suffixes: B documents, T document tokens, W windows, U window tokens, L labels.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from xmtc.data.collate import Batch
from xmtc.models.classifier import Classifier
from xmtc.models.config import ModelConfig
from xmtc.training.config import PhaseConfig
from xmtc.training.unfreeze import trained_groups

# For a kernel with an unknown name, Transformers makes no mask, as for a batch without padding.
_UNMASKED = "sdpa_unmasked"
AttentionInterface.register(_UNMASKED, sdpa_attention_forward)


@dataclass(frozen=True)
class Shapes:
    """A micro-batch.

    Attributes:
        documents: B.
        tokens: T.
        windows, window_tokens: W and U.
        labels: L.
        padded: whether some window is shorter than U, which takes a mask, and grouped keys and values repeated.
    """

    documents: int
    tokens: int
    windows: int
    window_tokens: int
    labels: int
    padded: bool


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of live tensors that were made inside the context, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and count its results."""
        for storage in _storages((args, kwargs)):
            self._note(storage, 0)  # existed before, or is already counted, such as a view of a weight
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            self._note(storage, storage.nbytes())
        return result

    def _note(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = size
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def _storages(tree: Any) -> Iterator[torch.UntypedStorage]:
    return (leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def meta_classifier(
    model: ModelConfig, from_config: Mapping[str, Any] | None, vocab_size: int, labels: int
) -> Classifier:
    """Build the classifier on the meta device: shapes and dtypes without weights.

    Args:
        model: settings; quantisation of the backbone is ignored.
        from_config: shape of a Hugging Face backbone; None for the lightweight encoders.
        vocab_size: vocabulary size of the corpus's tokenizer.
        labels: L.
    """
    encoder, backbone = model.encoder, model.encoder.backbone
    if backbone is not None and from_config is not None:
        # A causal mask does not change shapes, and the check of `bidirectional` needs weights.
        shaped = replace(backbone, from_config=dict(from_config), quantize=None, bidirectional=False, attention="sdpa")
        encoder = encoder.with_backbone(shaped)
    with torch.device("meta"):
        return replace(model, encoder=encoder).build(vocab_size, labels)


def simulate_finetune(classifier: Classifier, phase: PhaseConfig, shapes: Shapes, *, bf16: bool) -> int:
    """Find the peak bytes of one micro-batch's forward and backward pass, excluding weights and gradients.

    Args:
        classifier: classifier on the meta device; it is changed.
        phase: phase that trains.
        shapes: shapes of the micro-batch.
        bf16: whether to use autocast.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = _fake(classifier, shapes.padded)
        fake.train()
        fake.train_only(trained_groups(list(fake.parameter_groups()), phase))
        for parameter in fake.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_drop_gradient)
        batch = _batch(shapes)
        with LiveBytes() as live:
            with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
                logits_BL = fake.head.simulated(fake.encode(batch), batch.mask_BT)
                loss = nn.functional.binary_cross_entropy_with_logits(logits_BL, torch.zeros_like(logits_BL))
            loss.backward()
        return live.peak


def _drop_gradient(parameter: Tensor) -> None:
    parameter.grad = None


def _fake(classifier: Classifier, padded: bool) -> Classifier:
    """Build the classifier with fake tensors, which know the device that meta tensors lack."""
    for module in (classifier.encoder, classifier.head):
        for child in module.modules():
            for name, parameter in child._parameters.items():
                if parameter is not None:
                    empty = torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu")
                    child._parameters[name] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
            for name, buffer in child._buffers.items():
                if buffer is not None:
                    child._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="cpu")
    backbone = classifier.encoder.backbone
    if backbone is not None and not padded:
        backbone.transformer.set_attn_implementation(_UNMASKED)
    return Classifier(classifier.encoder, classifier.head, classifier.labels)


def _batch(shapes: Shapes) -> Batch:
    ids_BT = torch.zeros(shapes.documents, shapes.tokens, dtype=torch.long)
    ids_WU = torch.zeros(shapes.windows, shapes.window_tokens, dtype=torch.long)
    whole = shapes.windows == shapes.documents
    return Batch(
        documents_B=torch.arange(shapes.documents),
        token_ids_BT=ids_BT,
        mask_BT=torch.ones_like(ids_BT, dtype=torch.bool),
        input_ids_WU=ids_WU,
        attention_mask_WU=torch.ones_like(ids_WU, dtype=torch.bool),
        position_BT=None if whole else torch.zeros_like(ids_BT),
        rows_P=torch.zeros(shapes.documents, dtype=torch.long),
        labels_P=torch.zeros(shapes.documents, dtype=torch.long),
        weight_B=torch.ones(shapes.documents),
    )
