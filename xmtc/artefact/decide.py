"""Change the decision of an exported model, without training."""

from pathlib import Path

from xmtc.artefact.contract import LABELS
from xmtc.artefact.export import THRESHOLDS, read_outcomes, write_decision
from xmtc.artefact.info import check_same, model_digest, read_info
from xmtc.data.labels import LabelTable
from xmtc.errors import ConfigError
from xmtc.fusion.decision import Decision, Outcomes


def tuned_decision(
    outcomes: Outcomes | None, rule: str, labels: LabelTable, model: str
) -> Decision:
    """Tune the decision of a rule.

    Raises:
        ConfigError: there are no outcomes of dev, or too few for a budget.
    """
    if outcomes is None:
        raise ConfigError(
            f"{model}: has no rules to choose from, because its labels exclude each other and it gives the best one, "
            "or because it was exported without a dev split"
        )
    name, _, value = rule.partition("=")
    if name == "budget":
        # Beyond what the model keeps, the threshold would be 0, which every label reaches.
        most = len(outcomes.scores_P) * 100 // max(1, outcomes.documents) / 100
        if float(value) > most:
            raise ConfigError(
                f"{model}: {rule}: the model keeps only the {most} best labels per document of dev, on which the "
                f"threshold is tuned; give budget={most} or less"
            )
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
    decision = tuned_decision(
        read_outcomes(model), rule, LabelTable.load(model / LABELS), str(model)
    )
    check_same(model, digest)
    write_decision(model / THRESHOLDS, decision)
