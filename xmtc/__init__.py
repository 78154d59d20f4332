"""Distributed training, scoring and evaluation for extreme multi-label text classification."""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xmtc.own_data import train
    from xmtc.predict.predictor import Model, Prediction

__all__ = ["Model", "Prediction", "__version__", "train"]

__version__ = "0.1.0"

# PEFT imports bitsandbytes if it is installed, which then warns about a kernel that is not needed.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
# In Ray's workers, FAISS would log which of its builds it looks for.
logging.getLogger("faiss.loader").setLevel(logging.WARNING)


def __getattr__(name: str) -> Any:
    """`xmtc.Model` and `xmtc.train` bring torch with them, and are imported when they are asked for."""
    if name in ("Model", "Prediction"):
        from xmtc.predict import predictor

        return getattr(predictor, name)
    if name == "train":
        from xmtc import own_data

        return own_data.train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List them for completion, too."""
    return [*globals(), *__all__]
