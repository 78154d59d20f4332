"""How a run uses its encoder, which decides what is kept on disk and what is fitted again."""

from dataclasses import dataclass

from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig


@dataclass(frozen=True)
class EncoderUse:
    """How a run uses its encoder, resolved from its configuration with `encoder_use`.

    Attributes:
        trains: whether stage 2 changes the encoder.
        trained_length: maximum number of tokens that stage 2 reads of a training document.
        reads_tokens: whether anything but poolings without parameters reads the encoder's hidden states.
        scores_states: whether a scorer other than the head reads the encoder's pooled states.
        caches_states: whether the outputs of the untrained encoder are kept on disk.
    """

    trains: bool
    trained_length: int
    reads_tokens: bool
    scores_states: bool
    caches_states: bool

    @property
    def refits_scorers(self) -> bool:
        """Whether scorers that read hidden states are fitted again once stage 2 has changed the encoder."""
        return self.trains and self.scores_states


def encoder_use(config: RunConfig) -> EncoderUse:
    """Resolve how a run uses its encoder."""
    head = config.model.head
    longest = config.data.max_length
    return EncoderUse(
        trains=head.scores and config.finetune.trains_encoder,
        trained_length=min(longest, config.finetune.crop or longest),
        reads_tokens=head.scores and not head.reads_fixed,
        scores_states=any("states" in scorer.needs for scorer in config.model.scorers),
        caches_states=_caches_states(config),
    )


def _caches_states(config: RunConfig) -> bool:
    if not config.model.head.scores:
        return True
    tunes_head_first = config.finetune.phases[0].encoder_layers == 0
    if config.finetune.cache_hidden and tunes_head_first:
        return True
    plants = bool(planting_plan(config.model, config.plant).parts)
    return plants and config.plant.cache_hidden
