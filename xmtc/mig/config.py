"""Settings of the token ranking."""

from typing import Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.mig.measures import MutualInformationConfig, SignalConfig


@config
class MigConfig:
    """Which tokens speak for a label: the signal that ranks them, and how many are kept."""

    signal: SignalConfig = MutualInformationConfig()
    """The signal: `mig` (mutual information gain), `pmi`, `chi2`, `term_frequency`, or `shuffled` (the control)."""
    top_k: Annotated[int, Field(ge=1, le=32767)] = 1000
    """Tokens kept for each label. Published results hold between 500 and 2000."""
    min_documents: Annotated[int, Field(ge=1)] = 5
    """A token must occur in at least this many training documents to be ranked."""
    signed: bool = True
    """Keep only tokens that occur with the label more often than by chance. Without it, tokens whose absence marks a
    label are ranked as well (for `mig`, `chi2` and `shuffled` also those that never occur with it, which takes time
    and memory in proportion to vocabulary times labels)."""
