"""Which tokens speak for which label: counts, signals, rankings."""

from xmtc.mig.config import MigConfig
from xmtc.mig.ranking import TokenRanking, rank_tokens, ranking_fingerprint, saved_fingerprint
from xmtc.mig.show import show
from xmtc.mig.stage import rank_corpus

__all__ = [
    "MigConfig",
    "TokenRanking",
    "rank_corpus",
    "rank_tokens",
    "ranking_fingerprint",
    "saved_fingerprint",
    "show",
]
