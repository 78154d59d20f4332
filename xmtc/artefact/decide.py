"""Change the decision of an exported model, without training."""

from pathlib import Path

from xmtc.artefact.contract import LABELS
from xmtc.artefact.export import THRESHOLDS, read_outcomes, write_decision
from xmtc.artefact.info import check_same, model_digest, read_info
from xmtc.data.labels import LabelTable
from xmtc.errors import ConfigError
from xmtc.fusion.decision import Decision, Outcomes


def tuned_decision(outcomes: Outcomes | None, rule: str, labels: LabelTable, model: str) -> Decision:
    """Tune the decision of a rule.

    Raises:
        ConfigError: there are no outcomes of dev, or too few for a budget.
    """
    if outcomes is None:
        raise ConfigError(f"{model}: has no rules: it predicts the best label, or was exported without a dev split")
    most = len(outcomes.scores_P) * 100 // max(1, outcomes.documents) / 100
    # beyond what the model keeps, the threshold would be 0, which every label reaches
    if rule.startswith("budget=") and float(rule.removeprefix("budget=")) > most:
        raise ConfigError(f"{model}: {rule}: it keeps {most} labels per document of dev, the best; give no more")
    return outcomes.tuned(rule, labels.train_counts)


def decide(model: Path, rule: str) -> None:
    """Tune the decision of a model by another rule on the outcomes of its dev split, and write its thresholds.

    Args:
        model: directory of the model, which changes.
        rule: see `xmtc.fusion.decision`.

    Raises:
        CheckpointError: the model is missing or damaged.
        ConfigError: a single-label model.
    """
    digest = model_digest(model)
    read_info(model)
    decision = tuned_decision(read_outcomes(model), rule, LabelTable.load(model / LABELS), str(model))
    check_same(model, digest)
    write_decision(model / THRESHOLDS, decision)
