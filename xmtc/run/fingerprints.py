"""The stages that need the model, and what the result of each depends on."""

from xmtc.config.plain import config_hash, to_plain
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import Stage


def model_stages(config: RunConfig, corpus: str, ranking: str, start: str | None = None) -> list[tuple[Stage, str]]:
    """List the stages that need the model, each with a fingerprint of everything its result depends on.

    Args:
        config: of the run.
        corpus: fingerprint of the corpus.
        ranking: fingerprint of the ranking of its tokens.
        start: digest of the initial model, if there is one.
    """
    # Training the head reads nothing of the scorers, and the ranking only to plant the attention.
    weights = filter(None, (start, config.model.encoder.weights))
    planting = planting_plan(config.model, config.plant)
    learned = ranking if planting.ranks_tokens else corpus
    alone = {key: value for key, value in to_plain(config.model).items() if key not in ("scorers", "fusion")}
    plant = config_hash(learned, config.seed, alone, config.plant, *weights)
    finetune = config_hash(plant, config.finetune)
    found = [(Stage.PLANT, plant)] if planting.parts else []
    found += [(Stage.FINETUNE, finetune)] if config.model.head.scores else []
    fused = [to_plain(scorer) for scorer in config.model.scorers]
    if fused:  # before the head, for a first result
        fitted = [to_plain(scorer) for scorer in config.model.scorers]
        found.insert(0, (Stage.SCORERS, config_hash(plant, fitted, config.refits_scorers)))
        found += [(Stage.REFIT, config_hash(finetune, fitted))] if config.refits_scorers else []
    evaluate = config_hash(finetune, corpus, fused, config.model.fusion, config.evaluate)
    return [*found, (Stage.EVALUATE, evaluate)]
