"""Settings of the callbacks. Only `build` imports numerical libraries."""

from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members

if TYPE_CHECKING:
    from xmtc.training.callbacks.base import Callback, StageContext


class CallbackSettings(Protocol):
    """Settings of a callback."""

    @property
    def kind(self) -> str:
        """The name of the callback in a configuration."""
        ...

    def build(self, context: "StageContext") -> "Callback":
        """Build the callback for one stage of this process."""
        ...


@config
class ProfilerConfig(CallbackSettings):
    """Records three steps of the first worker with PyTorch's profiler, after the first ten, which are slower."""

    kind: Literal["profiler"] = "profiler"
    """Which callback."""

    @override
    def build(self, context: "StageContext") -> "Callback":
        from xmtc.training.callbacks.profiler import Profiler

        return Profiler(context)


CallbackConfig = Annotated[CallbackSettings, Members("xmtc.callbacks", ProfilerConfig)]
