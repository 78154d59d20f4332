"""Settings of the callbacks. Only `build` imports numerical libraries."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members

if TYPE_CHECKING:
    from xmtc.training.callbacks.base import Callback, StageContext


class CallbackSettings(Protocol):
    """Settings of a callback.

    Attributes:
        needs_whole_parameters: why every rank must hold all parameters between steps, as the end of a sentence; None if
            it need not.
    """

    needs_whole_parameters: ClassVar[str | None] = None

    @property
    def kind(self) -> str:
        """The name of the callback in a configuration."""
        ...

    def build(self, context: "StageContext") -> "Callback":
        """Build the callback for one stage of this process."""
        ...


@config
class EmaConfig(CallbackSettings):
    """Keeps an exponential moving average of the trained weights. Dev scores and the exported model use it."""

    kind: Literal["ema"] = "ema"
    """Which callback."""
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Share of the average that one update keeps: the average spans about 1/(1 − decay) steps. Update t, counted from
    0, keeps (1 + t)/(10 + t) while that is smaller, so the average soon forgets the initial weights."""

    needs_whole_parameters: ClassVar[str | None] = "no rank holds the parameters that it averages"

    @override
    def build(self, context: "StageContext") -> "Callback":
        from xmtc.training.callbacks.ema import Ema

        return Ema(self, context)


@config
class ProfilerConfig(CallbackSettings):
    """Records three steps of the first worker with PyTorch's profiler, after the first ten, which are slower."""

    kind: Literal["profiler"] = "profiler"
    """Which callback."""

    @override
    def build(self, context: "StageContext") -> "Callback":
        from xmtc.training.callbacks.profiler import Profiler

        return Profiler(context)


CallbackConfig = Annotated[CallbackSettings, Members("xmtc.callbacks", EmaConfig, ProfilerConfig)]


def check_kinds(callbacks: Sequence[CallbackSettings]) -> None:
    """Refuse a list that has the same callback twice.

    Raises:
        ValueError: names the callback.
    """
    kinds = [callback.kind for callback in callbacks]
    if twice := [kind for kind in kinds if kinds.count(kind) > 1]:
        raise ValueError(f"callbacks: {twice[0]} occurs twice; keep one")
