"""Hard negatives: a nearest-neighbour index over label vectors, refreshed in the background of training."""

from xmtc.mining.config import MiningConfig
from xmtc.mining.index import LabelIndex, label_vectors, query_vectors
from xmtc.mining.miner import Miner

__all__ = ["LabelIndex", "Miner", "MiningConfig", "label_vectors", "query_vectors"]
