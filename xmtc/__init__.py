"""Distributed training, scoring and evaluation for extreme multi-label text classification.

The public names are those of `__all__`. Each is imported when it is first asked for, because most bring torch along.
"""

import logging as _logging
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from xmtc.classifier import Classifier
    from xmtc.data.corpus import Corpus
    from xmtc.errors import XmtcError
    from xmtc.own_data import train
    from xmtc.predict.evidence import Evidence, Explanation
    from xmtc.predict.predictions import PredictedTexts, Prediction, Predictions
    from xmtc.predict.predictor import Model
    from xmtc.report.runs import evaluate_files

__all__ = [
    "Classifier",
    "Corpus",
    "Evidence",
    "Explanation",
    "Model",
    "PredictedTexts",
    "Prediction",
    "Predictions",
    "XmtcError",
    "__version__",
    "evaluate_files",
    "train",
]

__version__ = "0.1.0"
_MODULES = {
    "Classifier": "xmtc.classifier",
    "Corpus": "xmtc.data.corpus",
    "Evidence": "xmtc.predict.evidence",
    "Explanation": "xmtc.predict.evidence",
    "Model": "xmtc.predict.predictor",
    "PredictedTexts": "xmtc.predict.predictions",
    "Prediction": "xmtc.predict.predictions",
    "Predictions": "xmtc.predict.predictions",
    "XmtcError": "xmtc.errors",
    "evaluate_files": "xmtc.report.runs",
    "train": "xmtc.own_data",
}

# PEFT imports bitsandbytes if it is installed, which then warns about a kernel that is not needed.
_logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(_logging.ERROR)
# In Ray's workers, FAISS would log which of its builds it looks for.
_logging.getLogger("faiss.loader").setLevel(_logging.WARNING)


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List the public names, and nothing else."""
    return __all__
