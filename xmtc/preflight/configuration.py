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
_OF_TRAINING = ("finetune", "shortlist", "label_text")
_OF_PLANTING_EPOCHS = ("batch_size", "optimizer", "patience", "loss", "sampled_labels")


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
    _check_initial_model(config)
    for line in without_effect(config):
        logger.warning("%s", line)


def _check_initial_model(config: RunConfig) -> None:
    """Refuse to continue from a model whose tokenizer is not that of the corpus."""
    start = config.model.init_from
    if start is None:
        return
    folder = initial_model_folder(start, config.storage)
    tokenizer = config.data.tokenizer
    tokenizer_name = (
        config.model.encoder.tokenizer_name
        if tokenizer is None
        else tokenizer.pretrained
    )
    if tokenizer_name is not None and not _fits(
        str(folder / "tokenizer"), tokenizer_name
    ):
        raise other_tokenizer(start, folder)


def without_effect(config: RunConfig) -> Iterator[str]:
    """Name the settings that others make void. They are not refused: an override for one run may be the reason."""
    yield from _without_workers(config)
    yield from _without_training(config)
    if config.evaluate.fit_on_dev and not config.model.scorers:
        yield "model.scorers: there are none: no effect of evaluate.fit_on_dev"
    yield from _without_planting_epochs(config)
    if _adapters_stay_frozen(config):
        yield "model.encoder.lora: no phase of finetune has encoder_layers, so its adapters do not train"


def _without_workers(config: RunConfig) -> Iterator[str]:
    """Name the settings of workers, where there are none."""
    if config.distributed.max_workers > 0:
        return
    names = ["address"]
    if config.distributed.strategy != SingleConfig():
        names.append("strategy")
    keys = ", ".join(keys_beyond_defaults(config.distributed, names))
    if keys:
        yield f"distributed.workers: 0: this process trains, alone: no effect of distributed.{keys}"


def _without_training(config: RunConfig) -> Iterator[str]:
    """Name the settings of training without a head, or else the planted parts that the head does not have."""
    head = f"model.head.kind: {config.model.head.kind}"
    if config.model.head.scores:
        left_out = (
            set(config.plant.parts or ())
            - planting_plan(config.model, config.plant).parts
        )
        if left_out:
            yield f"plant.parts: {', '.join(sorted(left_out))}: no effect on {head}"
        return
    keys: list[str] = []
    for prefix, section in (
        ("", config),
        ("evaluate.", config.evaluate),
        ("model.", config.model),
    ):
        keys += [prefix + key for key in keys_beyond_defaults(section, _OF_TRAINING)]
    if keys:
        yield f"{head}: nothing trains: no effect of {', '.join(keys)}"


def _without_planting_epochs(config: RunConfig) -> Iterator[str]:
    """Name the settings of stage 1's epochs, where the closed form has none."""
    if (
        config.plant.method != "closed_form"
        or not planting_plan(config.model, config.plant).parts
    ):
        return
    keys = ", ".join(keys_beyond_defaults(config.plant, _OF_PLANTING_EPOCHS))
    if keys:
        yield f"plant.method: closed_form: no effect of plant.{keys}"


def _adapters_stay_frozen(config: RunConfig) -> bool:
    """Whether there are adapters that no phase trains; a quantised backbone needs them in any case."""
    backbone = config.model.encoder.backbone
    if (
        not config.model.head.scores
        or backbone is None
        or backbone.lora is None
        or backbone.quantize
    ):
        return False
    return not any(phase.encoder_layers for phase in config.finetune.phases)


def _check_row_dtype(config: RunConfig) -> None:
    """Refuse label tables in bfloat16 that are not split: their optimizer needs float32."""
    head = config.model.head
    if head.row_dtype == "float32" or not head.trains_rows:
        return
    if (
        config.finetune.loss.refuses_label_shards is not None
        and config.distributed.max_workers > 1
    ):
        raise ConfigError(
            f"model.head.row_dtype: {head.row_dtype}: a softmax keeps its label rows whole on every worker, and these "
            "train in float32; set model.head.row_dtype=float32, or distributed.workers=1"
        )


def _check_fields(config: RunConfig) -> None:
    """Refuse fields of scorers that the source does not have; one at a URI is not read before the run fetches it."""
    chosen = [
        (one.kind, fields)
        for one in config.model.scorers
        if (fields := getattr(one, "fields", None))
    ]
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
    if (
        backbone is None
        or backbone.from_config is not None
        or backbone.quantize
        or "flash" in backbone.attention
    ):
        return
    source = pretrained_source(backbone.name)
    size = sum(path.stat().st_size for path in source.weight_files())
    if source.folder is not None and size < _SMALL:
        backbone.build(
            len(load_pretrained((tokenizer and tokenizer.pretrained) or backbone.name))
        )


def _fits(tokenizer: str, backbone: str) -> bool:
    if tokenizer == backbone:
        return True
    try:
        return same_ids(load_pretrained(tokenizer), load_pretrained(backbone))
    except ConfigError:
        return True  # the model has no tokenizer, or preparation will explain what is wrong with the name
