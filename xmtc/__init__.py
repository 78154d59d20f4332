"""Distributed training, scoring and evaluation for extreme multi-label text classification."""

import logging
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xmtc.own_data import train
    from xmtc.score.predictor import Model, Prediction
else:
    from xmtc import train

__all__ = ["Model", "Prediction", "__version__", "train"]

__version__ = "0.1.0"

# PEFT imports bitsandbytes wherever it is installed, which then tells of a kernel that is not needed.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


class _Training(ModuleType):
    """The package `xmtc.train`, which can be called as well: `xmtc.train(texts, labels)`."""

    def __call__(self, *arguments: Any, **options: Any) -> "Model":
        """See `xmtc.own_data.train`."""
        from xmtc.own_data import train as train_on

        return train_on(*arguments, **options)


if not TYPE_CHECKING:
    train.__class__ = _Training


def __getattr__(name: str) -> Any:
    """`xmtc.Model` brings torch with it, and is imported when it is asked for."""
    if name in ("Model", "Prediction"):
        from xmtc.score import predictor

        return getattr(predictor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
