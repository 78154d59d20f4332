"""Refuse impossible configurations before a run begins."""

from xmtc.data.tokenizer import load_pretrained, same_ids
from xmtc.errors import ConfigError
from xmtc.run.config import RunConfig
from xmtc.run.copies import initial_model_folder


def check(config: RunConfig) -> None:
    """Refuse configurations that cannot work, before hours are spent on them.

    Raises:
        ConfigError: label tables of a dtype that cannot train, or see `check_tokenizer`.
    """
    _check_row_dtype(config)
    check_tokenizer(config)
    if config.model.init_from is not None:
        initial_model_folder(config.model.init_from, config.storage)


def _check_row_dtype(config: RunConfig) -> None:
    """Refuse label tables in bfloat16 that are not split: their optimizer needs float32."""
    head = config.model.head
    if head.row_dtype == "float32" or not head.trains_rows:
        return
    if config.finetune.loss.refuses_label_shards is not None and config.distributed.max_workers > 1:
        raise ConfigError(
            f"model.head.row_dtype: {head.row_dtype}: a softmax keeps its label rows whole on every worker, and these "
            "train in float32; set model.head.row_dtype=float32, or distributed.workers=1"
        )


def check_tokenizer(config: RunConfig) -> None:
    """Refuse a tokenizer that does not belong to the pretrained embeddings: its ids would mean other tokens.

    Raises:
        ConfigError: the backbone has pretrained weights, but `data.tokenizer` is trained or belongs to another model.
    """
    backbone, chosen = config.model.encoder.backbone, config.data.tokenizer
    if backbone is None or backbone.from_config is not None or chosen is None:
        return
    if chosen.pretrained is not None and _fits(chosen.pretrained, backbone.name):
        return
    key = config.model.encoder.backbone_key
    raise ConfigError(
        f"data.tokenizer: {chosen.describe()} does not match the token ids of the pretrained weights of {key}.name: "
        f"{backbone.name}; set data.tokenizer=null for the model's own, or {key}.from_config for random weights"
    )


def _fits(tokenizer: str, backbone: str) -> bool:
    if tokenizer == backbone:
        return True
    try:
        return same_ids(load_pretrained(tokenizer), load_pretrained(backbone))
    except ConfigError:
        return True  # the model has no tokenizer, or preparation will explain what is wrong with the name
