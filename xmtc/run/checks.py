"""What no section of a configuration can see alone: each check refuses one impossible combination.

All raise ValueError, with the keys and what to change.
"""

from collections.abc import Iterator

from xmtc.config.problems import shown, suggestion
from xmtc.data.config import DataConfig
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategies.settings import Demand
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.metrics import goals
from xmtc.losses.config import kinds_for
from xmtc.models.config import ModelConfig
from xmtc.models.heads.config import HeadUse
from xmtc.training.config import FinetuneConfig


def check_metric(finetune: FinetuneConfig, data: DataConfig) -> None:
    """Refuse a metric that picks no epoch."""
    metric = finetune.metric
    fitting = goals(data.task)
    if metric not in fitting:
        raise ValueError(
            f"finetune.metric: {shown(metric)}: no metric of a {data.task} task that picks an epoch; "
            f"{suggestion(metric, fitting)}known: {', '.join(fitting)}"
        )


def check_trained_weights(model: ModelConfig, finetune: FinetuneConfig) -> None:
    """Refuse a phase that would train weights that cannot train, before the phases in front of it are done."""
    backbone = model.encoder.backbone
    if not model.head.scores or finetune.phases[-1].encoder_layers == 0:
        return
    if backbone is not None and backbone.engine == "openvino":
        raise ValueError(
            f"{model.encoder.backbone_key}.engine: openvino: finetune.phases trains the encoder, and this engine only "
            "reads it; leave the engine out, or set encoder_layers: 0 in every phase"
        )
    if backbone is not None and backbone.dtype != "float32" and backbone.lora is None:
        key = model.encoder.backbone_key
        raise ValueError(
            f"{key}.dtype: {backbone.dtype}: finetune.phases trains these weights, which must be float32; set "
            f"{key}.dtype=float32, give {key}.lora, or set encoder_layers: 0 in every phase"
        )


def check_single_label(evaluate: EvaluateConfig, data: DataConfig) -> None:
    """Refuse settings of `evaluate` that choose labels where each document has exactly one."""
    if data.task != "single_label":
        return
    if evaluate.shortlist:
        raise ValueError(
            "evaluate.shortlist: the labels of a single-label task need every logit; leave it out"
        )
    if evaluate.decision != EvaluateConfig().decision:
        raise ValueError(
            "evaluate.decision: a single-label task gives each document its best label; leave it out"
        )


def check_loss(model: ModelConfig, finetune: FinetuneConfig, data: DataConfig) -> None:
    """Refuse a loss whose probabilities are not those of the task: one of all labels, or one of each."""
    task, loss = data.task, finetune.loss
    if loss.task == task or not model.head.scores:
        return
    if task == "single_label":
        reason = (
            "fits the probability of each label separately, and data.task: single_label "
            "reads them as shares of one"
        )
    else:
        reason = (
            "needs exactly one label on each document, and data.task is multi_label"
        )
    raise ValueError(
        f"finetune.loss.kind: {loss.kind} {reason}; set finetune.loss.kind to {' or '.join(kinds_for(task))}, or "
        f"data.task to {loss.task}"
    )


def check_strategy(distributed: DistributedConfig, model: ModelConfig) -> None:
    """Refuse what the strategy cannot do, in its own words."""
    refusals = distributed.chosen_strategy().refusals()
    for demand, setting in _demands(model):
        if demand in refusals:
            raise ValueError(f"{setting} and {refusals[demand]}")


def check_head(model: ModelConfig, finetune: FinetuneConfig) -> None:
    """Refuse what the head does not support, in its own words."""
    use = HeadUse(
        label_text=model.label_text,
        draws_labels=finetune.sampled_labels is not None or finetune.mining is not None,
        row_optimizer=finetune.label_optimizer is not None,
    )
    for refusal in model.head.refusals(use):
        raise ValueError(refusal)


def _demands(model: ModelConfig) -> Iterator[tuple[Demand, str]]:
    """Yield what the model needs of the strategy, with the setting that needs it."""
    backbone = model.encoder.backbone
    if model.head.label_tokens is not None:
        yield Demand.LABEL_TEXTS, f"model.head.kind: {model.head.kind}"
    if backbone is not None and backbone.quantize:
        yield Demand.QUANTIZED_WEIGHTS, f"model.encoder.quantize: {backbone.quantize}"
