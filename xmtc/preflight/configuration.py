"""Refuse impossible configurations before a run begins."""

import logging
from collections.abc import Iterator
from contextlib import suppress

from xmtc.config.base import keys_beyond_defaults
from xmtc.data.prepare import tokenizer_source
from xmtc.data.pretrained import pretrained_source
from xmtc.data.tokenizer import load_pretrained, same_ids
from xmtc.distributed.strategies.config import SingleConfig
from xmtc.errors import ConfigError
from xmtc.estimate.memory import UnknownShapeError, meta_classifier
from xmtc.estimate.size import Size
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.copies import initial_model_folder
from xmtc.scorers.base import check_fields
from xmtc.stages.initial_model import other_tokenizer
from xmtc.storage.fetch import remote_parts

logger = logging.getLogger(__name__)
_SMALL = 2**31  # bytes of weights that every machine loads in a few seconds


def check(config: RunConfig) -> None:
    """Refuse configurations that cannot work, before hours are spent on them, and warn of settings without effect.

    Raises:
        ConfigError: label tables of a dtype that cannot train, fields that documents do not have, a model that cannot
            be built, an initial model of another tokenizer, or see `check_tokenizer`.
    """
    _check_row_dtype(config)
    _check_fields(config)
    check_tokenizer(config)
    _check_weights(config)
    with suppress(UnknownShapeError):  # workers may have the backbone
        meta_classifier(config, Size())
    if (start := config.model.init_from) is not None:
        folder, chosen = initial_model_folder(start, config.storage), config.data.tokenizer
        corpus = config.model.encoder.tokenizer_name if chosen is None else chosen.pretrained
        if corpus is not None and not _fits(str(folder / "tokenizer"), corpus):
            raise other_tokenizer(start, folder)
    for line in without_effect(config):
        logger.warning("%s", line)


def without_effect(config: RunConfig) -> Iterator[str]:
    """Name the settings that others make void. They are not refused: an override for one run may be the reason."""
    model, plant, head = config.model, config.plant, f"model.head.kind: {config.model.head.kind}"
    planted = planting_plan(model, plant).parts
    if config.distributed.max_workers == 0:
        strategy = () if config.distributed.strategy == SingleConfig() else ("strategy",)
        if keys := ", ".join(keys_beyond_defaults(config.distributed, ("address", *strategy))):
            yield f"distributed.workers: 0: this process trains, alone: no effect of distributed.{keys}"
    if not model.head.scores:
        sections = {"": config, "evaluate.": config.evaluate, "model.": model}
        void = ("finetune", "shortlist", "label_text")
        if keys := ", ".join(
            f"{name}{key}" for name, one in sections.items() for key in keys_beyond_defaults(one, void)
        ):
            yield f"{head}: nothing trains: no effect of {keys}"
    elif left := set(plant.parts or ()) - planted:
        yield f"plant.parts: {', '.join(sorted(left))}: no effect on {head}"
    if config.evaluate.fit_on_dev and not model.scorers:
        yield "model.scorers: there are none: no effect of evaluate.fit_on_dev"
    epochs = ("batch_size", "optimizer", "patience", "loss", "sampled_labels")
    if plant.method == "closed_form" and planted and (keys := ", ".join(keys_beyond_defaults(plant, epochs))):
        yield f"plant.method: closed_form: no effect of plant.{keys}"
    backbone, frozen = model.encoder.backbone, not any(phase.encoder_layers for phase in config.finetune.phases)
    if model.head.scores and frozen and backbone is not None and backbone.lora is not None and not backbone.quantize:
        yield "model.encoder.lora: no phase of finetune has encoder_layers, so its adapters do not train"


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


def _check_fields(config: RunConfig) -> None:
    """Refuse fields of scorers that the source does not have; one at a URI is not read before the run fetches it."""
    chosen = [(one.kind, fields) for one in config.model.scorers if (fields := getattr(one, "fields", None))]
    if chosen and not any(remote_parts(config.data.source)):
        reader = config.data.source.build()
        known = (*reader.fields(), *reader.categories())
        for kind, fields in chosen:
            check_fields(fields, kind, known)


def check_tokenizer(config: RunConfig) -> None:
    """Refuse a tokenizer that does not belong to the pretrained embeddings: its ids would mean other tokens.

    Raises:
        ConfigError: there is no tokenizer, or the backbone has pretrained weights, but `data.tokenizer` is trained or
            belongs to another model.
    """
    tokenizer_source(config.data, config.model.encoder.tokenizer_name)
    pretrained, chosen = config.model.encoder.pretrained, config.data.tokenizer
    if pretrained is None or chosen is None:
        return
    if chosen.pretrained is not None and _fits(chosen.pretrained, pretrained):
        return
    key = config.model.encoder.backbone_key
    raise ConfigError(
        f"data.tokenizer: {chosen.describe()} does not match the token ids of the pretrained weights of {key}.name: "
        f"{pretrained}; set data.tokenizer=null for the model's own, or {key}.from_config for random weights"
    )


def _check_weights(config: RunConfig) -> None:
    """Load a small backbone that is in a folder here, to refuse a damaged one before a corpus is prepared."""
    backbone, tokenizer = config.model.encoder.backbone, config.data.tokenizer
    if backbone is None or backbone.from_config is not None or backbone.quantize or "flash" in backbone.attention:
        return
    source = pretrained_source(backbone.name)
    size = sum(path.stat().st_size for path in source.weight_files())
    if source.folder is not None and size < _SMALL:
        backbone.build(len(load_pretrained((tokenizer and tokenizer.pretrained) or backbone.name)))


def _fits(tokenizer: str, backbone: str) -> bool:
    if tokenizer == backbone:
        return True
    try:
        return same_ids(load_pretrained(tokenizer), load_pretrained(backbone))
    except ConfigError:
        return True  # the model has no tokenizer, or preparation will explain what is wrong with the name
