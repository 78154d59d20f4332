"""Any Hugging Face encoder or decoder as a backbone.

Suffixes: W windows, U window tokens, P tokens of all windows without padding, X tokens of all windows with it, D width.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from typing_extensions import override

from xmtc.data.pretrained import PACKAGED, pretrained_source
from xmtc.errors import CheckpointError
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.base import ADAPTER, FOLDER, Encoder
from xmtc.models.encoders.causality import is_causal
from xmtc.models.encoders.lora import add_lora
from xmtc.models.encoders.openvino_engine import OpenVinoEngine
from xmtc.models.encoders.pretrained import blocks_of
from xmtc.models.encoders.transformers_calls import quiet
from xmtc.models.module_files import part, read_weights, whole

# The architectures that read all windows as one row of tokens; a test tries each of them.
_PACKED = ("gpt2", "llama", "mistral", "phi", "phi3", "qwen2", "qwen3")
_ADAPTER_WEIGHTS = f"{ADAPTER}/adapter_model.safetensors"


class HuggingFaceBackbone(Encoder):
    """A transformer without heads, applied to windows.

    Attributes:
        model: the Transformers model, wrapped by PEFT if it has adapters.
        name: name of the pretrained model; None if the weights are random.
        causal: whether a token sees only the tokens before it.
        pad_token_id: the model's own padding id.
        packs: whether padding is left out, which needs FlashAttention: other kernels get a dense mask of the whole row.
    """

    def __init__(
        self, model: PreTrainedModel, settings: HuggingFaceConfig, window: int
    ) -> None:
        super().__init__(model.config.hidden_size, window)
        self.causal = is_causal(model, settings)
        self.pad_token_id: int = model.config.pad_token_id or 0
        self.name = settings.name if settings.from_config is None else None
        has_flash_attention = model.config._attn_implementation == "flash_attention_2"
        self.packs = (
            has_flash_attention and self.causal and model.config.model_type in _PACKED
        )
        self.model = model if settings.lora is None else add_lora(model, settings.lora)
        self._by_openvino = settings.engine == "openvino"

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D)."""
        if self.packs:
            return self._packed(input_ids_WU, attention_mask_WU)
        inputs = self._inputs(input_ids_WU, attention_mask_WU)
        if self._by_openvino and input_ids_WU.device.type == "cpu":
            return self._engine(inputs["input_ids"], inputs["attention_mask"])
        return self.model(**inputs).last_hidden_state

    @cached_property
    def _engine(self) -> OpenVinoEngine:
        """The converted transformer, made when it first encodes, because its weights are final then."""
        return OpenVinoEngine(self.transformer)

    def _inputs(
        self, input_ids_WU: Tensor, attention_mask_WU: Tensor
    ) -> dict[str, Tensor]:
        # Some models compute positions by comparing ids with their padding id, which may differ from the collator's.
        input_ids_WU = input_ids_WU.masked_fill(~attention_mask_WU, self.pad_token_id)
        return {"input_ids": input_ids_WU, "attention_mask": attention_mask_WU.long()}

    def _packed(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute the same from one row of all windows; without ends, every layer would find the padding again."""
        lengths_W = attention_mask_WU.sum(1)
        ends_W = nn.functional.pad(lengths_W.cumsum(0), (1, 0)).int()
        longest = attention_mask_WU.shape[1]
        places_P = attention_mask_WU.flatten().nonzero().squeeze(1)
        positions_WU = attention_mask_WU.cumsum(1) - 1
        states_1PD = self.model(
            input_ids=input_ids_WU.flatten()[places_P][None],
            position_ids=positions_WU.flatten()[places_P][None],
            use_cache=False,  # with a cache, Transformers takes the row for one text
            cu_seq_lens_q=ends_W,
            cu_seq_lens_k=ends_W,
            max_length_q=longest,
            max_length_k=longest,
        ).last_hidden_state
        padded_XD = states_1PD.new_zeros(attention_mask_WU.numel(), self.width)
        padded_XD = padded_XD.index_copy(0, places_P, states_1PD[0])
        return padded_XD.view(*attention_mask_WU.shape, -1)

    def hidden_states(
        self, input_ids_WU: Tensor, attention_mask_WU: Tensor
    ) -> Sequence[Tensor]:
        """Compute the states (W, U, D) of the embedding and of each layer; the last ones equal those of `forward`."""
        inputs = self._inputs(input_ids_WU, attention_mask_WU)
        return self.model(**inputs, output_hidden_states=True).hidden_states

    @property
    @override
    def backbone(self) -> "HuggingFaceBackbone":
        """Itself."""
        return self

    @property
    @override
    def first_token_is_blind(self) -> bool:
        """True for a decoder."""
        return self.causal

    @property
    def transformer(self) -> PreTrainedModel:
        """The Transformers model, without PEFT's wrapper."""
        if isinstance(self.model, PreTrainedModel):
            return self.model
        base = self.model.get_base_model()
        assert isinstance(base, PreTrainedModel)
        return base

    @override
    def layers(self) -> Sequence[nn.Module]:
        """Embeddings and blocks; with LoRA, only blocks with adapters."""
        blocks = blocks_of(self.transformer)
        if isinstance(self.model, PeftModel):
            return [block for block in blocks if _has_adapters(block)]
        parameters_of_blocks = {
            id(parameter) for block in blocks for parameter in block.parameters()
        }
        embeddings = nn.ModuleList()
        for name, module in self.transformer.named_modules():
            is_leaf = not list(module.children())
            if not is_leaf or not _is_below_blocks(name, module):
                continue
            if parameters_of_blocks.isdisjoint(
                id(parameter) for parameter in module.parameters()
            ):
                embeddings.append(module)
        return [embeddings, *blocks]

    @override
    def save(
        self, model: Path, tensors: Mapping[str, Tensor], trained: Collection[str]
    ) -> bool:
        """Adapters, and the backbone unless it is an unchanged pretrained model."""
        prefix = "model."
        if isinstance(self.model, PeftModel):
            _save_adapter(model / _ADAPTER_WEIGHTS, self.model, tensors, self.name)
            prefix = "model.base_model.model."
        changed = any("lora_" not in name for name in trained)
        if not changed and self.name is not None:
            return False
        of_backbone = {
            name: tensor for name, tensor in tensors.items() if "lora_" not in name
        }
        weights = whole(part(of_backbone, prefix), "encoder.model.")
        weights = {
            name.replace(".base_layer.", "."): tensor
            for name, tensor in weights.items()
        }
        with quiet():
            self.transformer.save_pretrained(model / FOLDER, state_dict=weights)
        return True

    def merge_adapters(self) -> None:
        """Fold the adapters into the weights, in place: W + (alpha / r) · B A, in the dtype of W."""
        assert isinstance(self.model, PeftModel)
        merged = self.model.merge_and_unload()
        assert isinstance(merged, PreTrainedModel)
        self.model = merged

    @override
    def load(self, model: Path) -> None:
        """Adapters; the backbone was loaded when it was built."""
        if not isinstance(self.model, PeftModel):
            return
        path = model / _ADAPTER_WEIGHTS
        adapter = read_weights(path)
        present = get_peft_model_state_dict(self.model, save_embedding_layers=False)
        if _shapes(present) != _shapes(adapter):
            raise CheckpointError(
                f"{path}: its adapters do not match config.json; copy the whole model folder again"
            )
        set_peft_model_state_dict(self.model, adapter)


def _save_adapter(
    path: Path, model: PeftModel, tensors: Mapping[str, Tensor], base: str | None
) -> None:
    of_adapters = {name: tensor for name, tensor in tensors.items() if "lora_" in name}
    state = whole(part(of_adapters, "model."), "encoder.model.")
    adapter = get_peft_model_state_dict(
        model, state_dict=state, save_embedding_layers=False
    )
    path.parent.mkdir()
    save_file(adapter, path, metadata={"format": "pt"})
    settings = replace(
        model.peft_config["default"], base_model_name_or_path=base, inference_mode=True
    )
    if base is not None and not base.startswith(PACKAGED):
        source = pretrained_source(base)
        settings = replace(
            settings,
            base_model_name_or_path=source.gguf_file or source.location,
            revision=source.revision,
        )
    settings.save_pretrained(str(path.parent))


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _has_adapters(block: nn.Module) -> bool:
    return any("lora_" in name for name, _ in block.named_parameters())


def _is_below_blocks(name: str, module: nn.Module) -> bool:
    """Whether a module outside the blocks has parameters and stands below them.

    Final norms stand above the blocks; the classifier's groups assign them to the top layer.
    """
    own_name = name.rsplit(".", 1)[-1].lower()
    is_norm = "norm" in own_name or own_name == "ln_f"
    is_final_norm = is_norm and "embed" not in name
    has_parameters = next(module.parameters(), None) is not None
    return has_parameters and not is_final_norm
