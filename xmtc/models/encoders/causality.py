"""Whether a token of a model sees the tokens after it: found out by trying, because declarations can be wrong.

Suffixes: W windows, U window tokens, D width.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from xmtc.errors import ConfigError
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.transformers_calls import first_line


def make_bidirectional(model: PreTrainedModel) -> None:
    """Remove the causal mask, in place. Some architectures keep it all the same, which `is_causal` finds out."""
    model.config.is_causal = False
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.__dict__["is_causal"] = False


def is_causal(model: PreTrainedModel, settings: HuggingFaceConfig) -> bool:
    """Find out whether a token sees only the tokens before it, from three texts of up to four tokens.

    What a model declares is believed if it has no weights, has weights in 4 or 8 bits, or has a kernel for GPUs,
    because none of these can read a text here. BigBird's first short text switches off its sparse attention, whose
    blocks are drawn at random, for good.

    Args:
        model: the model, on the CPU.
        settings: what the model was built from.

    Raises:
        ConfigError: the architecture keeps its causal mask in spite of `bidirectional`, cannot read a text, reads it
            differently beside padding, or has states of another width than it declares.
    """
    if not _can_read_here(model, settings):
        return any(getattr(module, "is_causal", False) for module in model.modules())
    kind = model.config.model_type
    states_WUD, alone_UD = _states_of_short_texts(model, settings)
    difference = (states_WUD[2, :3] - alone_UD).norm() / alone_UD.norm()
    if difference > torch.finfo(states_WUD.dtype).eps ** 0.5:
        raise ConfigError(
            f"model.encoder: {kind} reads a text differently beside padding; use another architecture"
        )
    width = states_WUD.shape[2]
    if width != model.config.hidden_size:
        raise ConfigError(
            f"model.encoder: {kind} has states of another width ({width}) than its hidden_size "
            f"({model.config.hidden_size}); use another model"
        )
    # The first two texts differ only in their last token: the first token sees it, or not.
    causal = torch.equal(states_WUD[0, 0], states_WUD[1, 0])
    if causal and settings.bidirectional:
        raise ConfigError(
            f"model.encoder.bidirectional: {kind} keeps its causal mask, whatever its settings say; set it to false"
        )
    return causal


def _can_read_here(model: PreTrainedModel, settings: HuggingFaceConfig) -> bool:
    if (
        model.config._attn_implementation == "flash_attention_2"
    ):  # only on a GPU, where the model is not yet
        return False
    if any(parameter.is_meta for parameter in model.parameters()):
        return False
    return settings.quantize is None or settings.bidirectional


def _states_of_short_texts(
    model: PreTrainedModel, settings: HuggingFaceConfig
) -> tuple[Tensor, Tensor]:
    """Compute the states (W, U, D) of three texts, and (3, D) of the third one without its padding.

    Raises:
        ConfigError: the model cannot read them.
    """
    padding = model.config.pad_token_id or 0
    ids_WU = torch.tensor(
        [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, padding]], device=model.device
    )
    mask_WU = torch.tensor(
        [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]], device=model.device
    )
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            states_WUD = model(
                input_ids=ids_WU, attention_mask=mask_WU
            ).last_hidden_state
            alone_1UD = model(
                input_ids=ids_WU[2:, :3], attention_mask=mask_WU[2:, :3]
            ).last_hidden_state
    except Exception as error:  # the library has no error class
        alternative = (
            "architecture"
            if settings.dtype == "float32"
            else "architecture, or dtype: float32"
        )
        raise ConfigError(
            f"model.encoder: {model.config.model_type} cannot read a text of three tokens in {settings.dtype} "
            f"({first_line(error)}); use another {alternative}"
        ) from error
    finally:
        model.train(training)
    return states_WUD, alone_1UD[0]
