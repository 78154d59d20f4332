"""The `mig` section of a configuration. Importing it imports no numerical library."""

from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members

if TYPE_CHECKING:
    from xmtc.planting.mig.measures import Signal


class SignalSettings(Protocol):
    """The settings of a signal: the `mig.signal` section of a configuration.

    An installed package adds a signal by an entry point of the group `xmtc.signals`. The entry point's name is the
    kind, and its object is the settings class, a `@config` dataclass.
    """

    @property
    def kind(self) -> str:
        """Name of the signal."""
        ...

    def build(self) -> "Signal":
        """Build the signal, which scores tokens."""
        ...


@config
class MutualInformationConfig(SignalSettings):
    """Mutual information gain, I(t;l) = Σ (n_ab/N)·ln(n_ab·N / (n_a·n_b)) over the four cells, in nats."""

    kind: Literal["mig"] = "mig"
    """Mutual information gain."""

    @override
    def build(self) -> "Signal":
        from xmtc.planting.mig.measures import MutualInformation

        return MutualInformation()


@config
class PointwiseConfig(SignalSettings):
    """Pointwise mutual information, ln(n11·N / (n_t·n_l)): favours rare tokens."""

    kind: Literal["pmi"] = "pmi"
    """Pointwise mutual information."""

    @override
    def build(self) -> "Signal":
        from xmtc.planting.mig.measures import PointwiseInformation

        return PointwiseInformation()


@config
class ChiSquaredConfig(SignalSettings):
    """Pearson's chi-squared of the 2×2 table, N·(n11·n00 − n10·n01)² / (n_t·(N−n_t)·n_l·(N−n_l))."""

    kind: Literal["chi2"] = "chi2"
    """Chi-squared, without continuity correction."""

    @override
    def build(self) -> "Signal":
        from xmtc.planting.mig.measures import ChiSquared

        return ChiSquared()


@config
class TfIdfConfig(SignalSettings):
    """Mean TF-IDF weight of the token in a document of the label: mean occurrences × ln(N / n_t)."""

    kind: Literal["tfidf"] = "tfidf"
    """TF-IDF."""

    @override
    def build(self) -> "Signal":
        from xmtc.planting.mig.measures import TfIdf

        return TfIdf()


SignalConfig = Annotated[
    SignalSettings,
    Members(
        "xmtc.signals",
        MutualInformationConfig,
        PointwiseConfig,
        ChiSquaredConfig,
        TfIdfConfig,
    ),
]
"""The `mig.signal` section: one of these or of those that installed packages add."""


@config
class MigConfig:
    """Which tokens mark a label: the signal that ranks them, and how many are kept."""

    signal: SignalConfig = MutualInformationConfig()
    """The signal: `mig` (mutual information gain), `pmi`, `chi2` or `tfidf`."""
    top_k: Annotated[int, Field(ge=1, le=32767)] = 1000
    """Tokens kept for each label. Published results hold between 500 and 2000."""
    min_documents: Annotated[int, Field(ge=1)] = 5
    """A token must occur in at least this many training documents to be ranked."""
    signed: bool = True
    """Keep only tokens that occur with the label more often than by chance. Without it, tokens whose absence marks a
    label are ranked too; `mig` and `chi2` then score the whole vocabulary."""
