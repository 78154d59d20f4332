"""Settings of encoders that are or contain a Hugging Face backbone. Only `build` imports Transformers."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.errors import CheckpointError
from xmtc.files import read_json, reading
from xmtc.models.encoders.settings import EncoderSettings

if TYPE_CHECKING:
    from xmtc.models.encoders.hugging_face import HuggingFaceBackbone
    from xmtc.models.encoders.maxpool import MaxPoolEncoder
    from xmtc.models.heads.config import HeadSettings


@config
class LoraConfig:
    """Low-rank adapters on a frozen backbone: W + (alpha / r) · B A."""

    r: Annotated[int, Field(ge=1)] = 16
    """Rank of the update."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """Scale of the update; its factor is alpha / r."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Dropout before the adapter."""
    target_modules: Literal["all_linear"] | list[str] | None = None
    """Suffixes of the module names to adapt, such as `q_proj`, or `all_linear`. Default: the layers of attention."""


@config
class HuggingFaceConfig(EncoderSettings):
    """A Hugging Face encoder (BERT, RoBERTa, DeBERTa, ModernBERT …) or decoder (LLaMA, Mistral, Qwen, Phi …)."""

    kind: Literal["hugging_face"] = "hugging_face"
    """Which encoder."""
    name: str = DEFAULT_BACKBONE
    """Hub id, which `owner/name@revision` pins to a commit, tag or branch; local folder; `.gguf` file, which is
    dequantised on loading (needs `xmtc[gguf]`); or `packaged:<name>`. Its tokenizer is data.tokenizer's default."""
    from_config: dict[str, Any] | None = None
    """Use random weights in the shape of this Transformers configuration (with `model_type`), not pretrained ones."""
    lora: LoraConfig | None = None
    """Freeze the backbone and train low-rank adapters. Without it, fine-tuning trains the whole backbone."""
    quantize: Literal["nf4", "int8"] | None = None
    """Store the frozen weights in 4 or 8 bits (bitsandbytes). Needs `lora`; not with ZeRO-3."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the stored weights. bfloat16 halves the memory of a frozen backbone under LoRA; adapters stay float32."""
    bidirectional: bool = False
    """Let every token of a decoder see the tokens after it. xmtc verifies this when it builds the model."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention kernel. `auto`: FlashAttention-2 if it is installed and usable, otherwise Transformers' default."""
    engine: Literal["torch", "openvino"] = "torch"
    """What computes the states of a frozen encoder on a CPU; a GPU always uses PyTorch. `openvino` takes up to half the
    time less. It needs `xmtc[openvino]`, also wherever the model predicts."""
    gradient_checkpointing: Annotated[int, Field(ge=0)] = 0
    """Recompute the activations of every n-th layer in the backward pass: 1 of all layers, 0 of none."""
    window: Annotated[int, Field(ge=8)] | None = None
    """Tokens per window, including special tokens. Default: the model's maximum, but at most 4,096."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Overrides every dropout probability of the backbone."""

    def __post_init__(self) -> None:
        """Refuse combinations that cannot train."""
        if self.quantize and self.lora is None:
            raise ValueError(
                "`quantize` needs `lora`: quantized weights cannot be trained themselves"
            )
        if self.quantize and self.name.lower().endswith(".gguf"):
            raise ValueError(
                "`quantize` cannot read a .gguf file, which has its own quantisation: leave `quantize` out, or save "
                "the model as a folder with Transformers"
            )
        if self.quantize and self.from_config is not None:
            raise ValueError(
                "`quantize` needs pretrained weights, and `from_config` gives random ones"
            )
        if self.engine == "openvino" and (self.lora or self.dtype != "float32"):
            raise ValueError(
                "`engine: openvino` reads a whole backbone in float32: leave out `lora` and `dtype`"
            )
        if self.from_config is not None and not isinstance(
            self.from_config.get("model_type"), str
        ):
            raise ValueError("`from_config` needs a `model_type` such as llama or bert")
        if (
            self.attention == "flash_attention_2"
            and self.dtype != "bfloat16"
            and not self.quantize
        ):
            raise ValueError("`attention: flash_attention_2` needs `dtype: bfloat16`")

    @property
    def backbone(self) -> "HuggingFaceConfig":
        """Itself."""
        return self

    @property
    @override
    def tokenizer_name(self) -> str:
        return self.name

    def with_backbone(self, backbone: "HuggingFaceConfig") -> "HuggingFaceConfig":
        """Return the backbone."""
        return backbone

    @override
    def exported(self, folder: Path) -> "HuggingFaceConfig":
        """The folder holds the whole backbone, or is not there."""
        return (
            replace(self, name=str(folder), from_config=None)
            if folder.is_dir()
            else self
        )

    def build(self, vocab_size: int) -> "HuggingFaceBackbone":
        """Load the backbone.

        Args:
            vocab_size: number of token ids of the corpus's tokenizer.

        Raises:
            ConfigError: the model cannot be found, or does not fit these settings or the corpus.
        """
        from xmtc.models.encoders.hugging_face import HuggingFaceBackbone
        from xmtc.models.encoders.pretrained import load_transformer

        model, window = load_transformer(self, vocab_size)
        return HuggingFaceBackbone(model, self, window)


@config
class MaxPoolConfig(EncoderSettings):
    """MaxPoolBERT: a Hugging Face encoder whose first token, [CLS], is enriched. Use it with first-token pooling."""

    backbone_key: ClassVar[str] = "model.encoder.base"
    kind: Literal["maxpool"] = "maxpool"
    """Which encoder."""
    base: HuggingFaceConfig = HuggingFaceConfig()
    """The encoder."""
    variant: Literal["cls_max", "cls_attention", "all_max_attention"] = (
        "all_max_attention"
    )
    """`cls_max`: [CLS] is max-pooled over the last layers. `cls_attention`: it attends to the last layer once more.
    `all_max_attention`: every token is max-pooled first."""
    last_layers: Annotated[int, Field(ge=1)] = 3
    """Number k of layers, from the top, that are pooled; not used by cls_attention."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Heads of the additional attention; must divide the encoder's width; not used by cls_max."""

    def __post_init__(self) -> None:
        """Refuse an engine that gives the last layer alone."""
        if self.base.engine != "torch":
            raise ValueError(
                "`base.engine: openvino` gives no states of single layers, which `maxpool` reads; leave it out"
            )

    @property
    @override
    def backbone(self) -> HuggingFaceConfig:
        return self.base

    @property
    @override
    def tokenizer_name(self) -> str:
        return self.base.name

    @override
    def with_backbone(self, backbone: HuggingFaceConfig) -> "MaxPoolConfig":
        return replace(self, base=backbone)

    @override
    def exported(self, folder: Path) -> "MaxPoolConfig":
        """The folder holds the backbone's shape, and its weights are loaded later.

        Weights in 4 or 8 bits can only be made from pretrained ones.
        """
        shape = folder / "config.json"
        if self.base.quantize or not shape.is_file():
            return self
        with reading(
            shape,
            CheckpointError,
            "copy the whole model folder again, or export the model again",
        ):
            return self.with_backbone(replace(self.base, from_config=read_json(shape)))

    @override
    def head_refusal(self, head: "HeadSettings") -> str | None:
        """A head that hardly reads the only token that changes."""
        if self.variant == "all_max_attention" or head.first_token != "hardly":
            return None
        return (
            f"head.pooling hardly uses the first token, but encoder.variant: {self.variant} changes only this token; "
            "use head.pooling: {kind: first}"
        )

    def build(self, vocab_size: int) -> "MaxPoolEncoder":
        """Load the encoder.

        Raises:
            ConfigError: see `HuggingFaceConfig.build`; or it has fewer layers, or a width that the heads do not divide.
        """
        from xmtc.models.encoders.maxpool import build_max_pool

        return build_max_pool(self, vocab_size)
