"""Find hard negatives during training in an index of label vectors, at most `refresh_steps` old.

Suffixes: B documents, d width of the vectors, K candidates, P (document, label) pairs, M mined labels.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.mining.config import IndexConfig, MiningConfig
from xmtc.mining.index import ExactSearch, LabelIndex
from xmtc.track.console import print_line

RERANK = 4
"""Labels to look up for each candidate that the head's scores keep, because the index ignores attention."""

Rank = Callable[[NDArray[np.int64]], NDArray[np.float32]]
Keep = Callable[[NDArray[np.float32]], NDArray[np.bool_]]


@dataclass(frozen=True)
class _Built:
    """An index, the step whose label vectors it holds, and the seconds that the build took."""

    index: LabelIndex | ExactSearch
    step: int
    seconds: float


def _build(vectors_Ld: NDArray[np.float32], step: int, device: torch.device) -> _Built:
    start = time.perf_counter()
    index = (
        ExactSearch(vectors_Ld, device)
        if device.type == "cuda"
        else LabelIndex(vectors_Ld, IndexConfig())
    )
    return _Built(index, step, time.perf_counter() - start)


class Miner:
    """Finds the labels nearest to documents. Not thread-safe.

    Every `refresh_steps / 2` steps, the build of a new index begins. It is put into use at a fixed later step, so two
    runs mine the same labels as long as builds finish in time. The first index, and the first after a resume, is built
    before the step that needs it, from the weights of that step.

    Args:
        config: see `MiningConfig`.
        snapshot: copies the current label vectors, (L, d).
        device: where training computes.
    """

    def __init__(
        self,
        config: MiningConfig,
        snapshot: Callable[[], NDArray[np.float32]],
        device: torch.device,
    ) -> None:
        self._config = config
        self._snapshot = snapshot
        self._device = device
        self._half = config.refresh_steps // 2
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mining")
        self._serving: _Built | None = None
        self._pending: tuple[int, Future[_Built]] | None = None
        self._sums: dict[str, float] = defaultdict(float)
        self._age = 0

    def before_step(self, step: int) -> None:
        """Put a finished index into use and start building the next one, if either is due at this step.

        Raises:
            XmtcError: the label vectors are not finite.
        """
        if self._serving is None:
            self._serving = _build(self._snapshot(), step, self._device)
        if self._pending is not None:
            begun_at, build = self._pending
            if step - begun_at >= self._half and build.done():
                self._serving = build.result()
                self._pending = None
        if (
            self._pending is None
            and step % self._half == 0
            and step > self._serving.step
        ):
            vectors_Ld = self._snapshot()
            self._pending = (
                step,
                self._thread.submit(_build, vectors_Ld, step, self._device),
            )
        self._age = step - self._serving.step
        self._warn_if_stale(step)

    def _warn_if_stale(self, step: int) -> None:
        """Warn once in every `refresh_steps` that the index is too old."""
        refresh_steps = self._config.refresh_steps
        late = self._age - refresh_steps
        if late > 0 and (late - 1) % refresh_steps == 0:
            print_line(
                f"mining: the index is {self._age} steps old at step {step}, and the next one is not ready: "
                f"raise finetune.mining.refresh_steps ({refresh_steps})"
            )

    def mine(
        self,
        queries_Bd: NDArray[np.float32],
        rows_P: NDArray[np.int64],
        labels_P: NDArray[np.int64],
        rank: Rank | None = None,
        keep: Keep | None = None,
    ) -> NDArray[np.int64]:
        """Find the hard negatives of all documents, (M,), ascending, distinct. A label may belong to another document.

        Args:
            queries_Bd: one query per document, see `query_vectors`.
            rows_P: document of each positive pair.
            labels_P: label of each positive pair.
            rank: scores looked-up labels (B, K), where -1 stands for no label; the best of `RERANK` times as many
                are kept.
            keep: decides from the scores (B, K) which candidates are among the best of all workers' indexes. Needs
                `rank`. None keeps all.

        Raises:
            XmtcError: the width of the queries differs from the index's.
        """
        assert self._serving is not None, "before_step comes first"
        start = time.perf_counter()
        candidates_BK, scores_BK = self._search(self._serving.index, queries_Bd, rank)
        seconds = time.perf_counter() - start
        missing = (candidates_BK < 0).sum()
        if keep is not None and scores_BK is not None:
            candidates_BK = np.where(keep(scores_BK), candidates_BK, -1)
        own_BK = _is_own(candidates_BK, rows_P, labels_P)
        negatives = candidates_BK[~own_BK & (candidates_BK >= 0)]
        mined_M = np.unique(negatives)
        counts = {
            "batches": 1,
            "documents": len(candidates_BK),
            "positives": len(labels_P),
            "own": own_BK.sum(),
            "missing": missing,
            "duplicate": len(negatives) - len(mined_M),
            "mined": len(mined_M),
            "query_s": seconds,
        }
        for name, value in counts.items():
            self._sums[name] += float(value)
        return mined_M

    def _search(
        self,
        index: LabelIndex | ExactSearch,
        queries_Bd: NDArray[np.float32],
        rank: Rank | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Find candidates (B, K) and, with `rank`, their scores."""
        count = self._config.candidates
        if rank is None:
            return index.search(queries_Bd, count), None
        labels_BN = index.search(queries_Bd, count * RERANK)
        scores_BN = np.where(labels_BN < 0, -np.inf, rank(labels_BN)).astype(np.float32)
        best_BK = np.argsort(-scores_BN, axis=1, kind="stable")[:, :count]
        labels_BK = np.take_along_axis(labels_BN, best_BK, axis=1)
        scores_BK = np.take_along_axis(scores_BN, best_BK, axis=1)
        return labels_BK, scores_BK

    def read_metrics(self) -> dict[str, float]:
        """Return the metrics `mine/…` since the last call: means over documents, and `labels` over micro-batches."""
        sums = self._sums
        self._sums = defaultdict(float)
        if not sums["batches"] or self._serving is None:
            return {}
        documents = sums["documents"]
        batches = sums["batches"]
        return {
            "mine/recall": sums["own"] / max(1, sums["positives"]),
            "mine/labels": sums["mined"] / batches,
            "mine/dropped_positive": sums["own"] / documents,
            "mine/dropped_duplicate": sums["duplicate"] / documents,
            "mine/dropped_missing": sums["missing"] / documents,
            "mine/age_steps": float(self._age),
            "mine/build_s": self._serving.seconds,
            "mine/query_ms": 1000 * sums["query_s"] / batches,
        }


def _is_own(
    candidates_BK: NDArray[np.int64],
    rows_P: NDArray[np.int64],
    labels_P: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Mark the candidates that are positives of the document that they were found for."""
    largest = max(int(labels_P.max(initial=0)), int(candidates_BK.max(initial=0)))
    labels = largest + 1
    # A number for each pair of a document and a label, so that pairs can be compared.
    documents_B1 = np.arange(len(candidates_BK))[:, None]
    pairs_BK = documents_B1 * labels + candidates_BK
    positive_pairs_P = rows_P * labels + labels_P
    return np.isin(pairs_BK, positive_pairs_P) & (candidates_BK >= 0)
