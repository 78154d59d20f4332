"""Linear trees on the same whole texts (omikuji, the extra `trees`), their predictions cached on the disk."""

import json
import time
from pathlib import Path

import numpy as np
import omikuji
from quality_data import Case
from tree_baseline import predict, train_tree

from xmtc.evaluate.predictions import SparsePredictions
from xmtc.files import write_text

# Bonsai: Khandagale et al. 2020, with the settings that Annif's documentation gives for omikuji.
_SETTINGS = {"parabel": {}, "bonsai": {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}}
PEERS = tuple(_SETTINGS)


def peer_predictions(name: str, case: Case, cache: Path) -> tuple[SparsePredictions, float]:
    """A tree's best hundred labels of the held-out documents, and the seconds that its fit took.

    Args:
        name: `parabel` or `bonsai`, three trees each, omikuji's settings otherwise.
        case: the data.
        cache: folder of the predictions; there they are read.
    """
    path = cache / f"{name}.npz"
    if not path.exists():
        settings = omikuji.Model.default_hyper_param()
        for key, value in _SETTINGS[name].items():
            setattr(settings, key, value)
        began = time.perf_counter()
        model = train_tree(case.training.features.words_NV, case.training.labels_NL, settings)
        seconds = time.perf_counter() - began
        found = predict(model, case.held_out.words_NV)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, ids=found.label_ids_NK, scores=found.scores_NK)
        write_text(cache / f"{name}.json", json.dumps({"fit_s": seconds}))
    saved = np.load(path)
    return SparsePredictions(saved["ids"], saved["scores"]), json.loads((cache / f"{name}.json").read_text())["fit_s"]
