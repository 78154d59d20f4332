"""Distributed training, scoring and evaluation for extreme multi-label text classification."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xmtc.own_data import train
    from xmtc.predict.predictions import Prediction
    from xmtc.predict.predictor import Model

__all__ = ["Model", "Prediction", "__version__", "train"]

__version__ = "0.1.0"
_PLACES = {"Model": "xmtc.predict.predictor", "Prediction": "xmtc.predict.predictions", "train": "xmtc.own_data"}

# PEFT imports bitsandbytes if it is installed, which then warns about a kernel that is not needed.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
# In Ray's workers, FAISS would log which of its builds it looks for.
logging.getLogger("faiss.loader").setLevel(logging.WARNING)


def __getattr__(name: str) -> Any:
    """`xmtc.Model` and `xmtc.train` bring torch with them, and are imported when they are asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """List them for completion, too."""
    return [*globals(), *__all__]
