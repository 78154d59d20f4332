"""`xmtc serve` on a Ray cluster: replicas of the application in a Ray Serve deployment, see launch/serve.yaml."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from ray import serve

from xmtc.desk.config import (
    TOKEN_VARIABLE,
    ServeConfig,
    Tuning,
    read_token,
    read_tuning,
)
from xmtc.desk.serve.app import make_app
from xmtc.desk.serve.server import read_models
from xmtc.distributed.strategies.settings import Precision
from xmtc.errors import ConfigError

DEPLOYMENT = "xmtc"


class Arguments(BaseModel):
    """`args` of the application in a Serve configuration.

    Attributes:
        model: directory or URI that every node can reach.
        models: instead, a folder or URI with versions, see `xmtc.desk.serve.models`; each replica follows it.
        set: overrides of settings, such as `[limits.texts=128]`.
        device: see `choose_device`.
        precision: see `use_bfloat16`.
    """

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    models: str | None = None
    set: Sequence[str] = ()
    device: str = "auto"
    precision: Precision = "auto"


def application(args: Arguments) -> serve.Application:
    """Build the application for Ray Serve. Every replica loads the model and has a separate queue; annotations are off.

    Raises:
        ConfigError: a setting is wrong.
    """
    if (args.model is None) == (args.models is None):
        raise ConfigError("args: give either model or models")
    tuning = read_tuning(args.set)

    def build() -> Any:
        return _replica(args, tuning)

    return serve.deployment(serve.ingress(build)(), name=DEPLOYMENT).bind()


def _replica(args: Arguments, tuning: Tuning) -> Any:
    """Build the application of one replica, in its process.

    Raises:
        ConfigError: there is no token, although other machines may reach Ray's proxies.
    """
    token = read_token(None)
    if token is None:
        raise ConfigError(
            f"set {TOKEN_VARIABLE} on all nodes: other machines may reach Ray's proxies"
        )
    config = ServeConfig(token=token, **vars(tuning))
    return make_app(
        read_models(
            args.model,
            args.models,
            config,
            device=args.device,
            precision=args.precision,
        )
    )
