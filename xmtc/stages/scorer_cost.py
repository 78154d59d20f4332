"""How long each scorer takes for a document on this machine."""

import time
from collections import defaultdict
from dataclasses import replace

import torch

from xmtc.fusion.ensemble import HEAD, Ensemble
from xmtc.predict.fused_scores import FusedScores
from xmtc.stages.worker import Worker

ENCODER = "encoder"
"""Names the cost of encoding, which the head and scorers of states share."""
_DOCUMENTS = 200
_BATCH_TOKENS = 4096


def milliseconds_per_document(worker: Worker, ensemble: Ensemble) -> dict[str, float]:
    """Measure each scorer, the head and the encoder on some dev documents.

    Args:
        worker: worker of this process.
        ensemble: scorers, with or without the head.

    Returns:
        Milliseconds per document by name of the scorer; `ENCODER` only if something reads its states.
    """
    seconds: dict[str, float] = defaultdict(float)
    documents = 0
    fused = FusedScores(worker.classifier, ensemble, worker.dev.words)
    worker.classifier.eval()
    for part, batch in worker.batches.read(worker.dev, _BATCH_TOKENS, _DOCUMENTS):
        documents += len(part.documents)
        with torch.inference_mode(), worker.strategy.autocast():
            if ensemble.needs_states or ensemble.has_head:
                begun = _now(worker.strategy.device)
                batch = replace(batch, hidden_BTD=worker.classifier.encode(batch))
                seconds[ENCODER] += _now(worker.strategy.device) - begun
            if ensemble.has_head:
                begun = _now(worker.strategy.device)
                worker.classifier(batch)
                seconds[HEAD] += _now(worker.strategy.device) - begun
            features, _ = fused.features(batch)
        for name, scorer in ensemble.scorers.items():
            begun = time.perf_counter()
            scorer.score(features)
            seconds[name] += time.perf_counter() - begun
    return {name: 1000 * total / documents for name, total in seconds.items()}


def _now(device: torch.device) -> float:
    """Return the time at which the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
