"""What the result of each stage depends on, hashed, so that a stage with the same result is not run again."""

from dataclasses import dataclass

from xmtc.config.plain import config_hash, to_plain
from xmtc.planting.mig.ranking import ranking_fingerprint
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import encoder_use


@dataclass(frozen=True)
class Fingerprints:
    """The fingerprints of a run's stages, one method for each.

    Attributes:
        config: configuration of the run.
        corpus: fingerprint of the corpus; nothing but `prepare` is known before there is one.
        initial_model: digest of the model that training continues from; empty if there is none.
    """

    config: RunConfig
    corpus: str = ""
    initial_model: str = ""

    def prepare(self) -> str:
        """That of the corpus that will be made: its settings."""
        return config_hash(self.config.data)

    def mig(self) -> str:
        """That of the ranking of tokens."""
        return ranking_fingerprint(self.corpus, self.config.mig)

    def plant(self) -> str:
        """That of the planted head, from which everything learnt follows, whether anything is planted or not."""
        config = self.config
        # Training the head reads nothing of the scorers, and the ranking only to plant the attention.
        model = {
            key: value
            for key, value in to_plain(config.model).items()
            if key not in ("scorers", "fusion")
        }
        learned_from = (
            self.mig()
            if planting_plan(config.model, config.plant).ranks_tokens
            else self.corpus
        )
        weights = [
            digest
            for digest in (self.initial_model, config.model.encoder.weights)
            if digest
        ]
        return config_hash(learned_from, config.seed, model, config.plant, *weights)

    def finetune(self) -> str:
        """That of the trained classifier."""
        return config_hash(self.plant(), self.config.finetune)

    def scorers(self) -> str:
        """That of the scorers over the untrained encoder."""
        refits = encoder_use(self.config).refits_scorers
        return config_hash(self.plant(), self._scorer_settings(), refits)

    def refit(self) -> str:
        """That of the scorers over the trained encoder."""
        return config_hash(self.finetune(), self._scorer_settings())

    def evaluate(self) -> str:
        """That of the exported model and its metrics."""
        config = self.config
        return config_hash(
            self.finetune(),
            self.corpus,
            self._scorer_settings(),
            config.model.fusion,
            config.evaluate,
        )

    def report(self) -> str:
        """Nothing: the report is always drawn again."""
        return ""

    def _scorer_settings(self) -> list[object]:
        return [to_plain(scorer) for scorer in self.config.model.scorers]
