"""The strategies behind the protocol in `xmtc.distributed.strategy`."""

from typing import Annotated

from pydantic import Discriminator

from xmtc.distributed.strategies.ddp import DDPConfig
from xmtc.distributed.strategies.deepspeed import DeepSpeedConfig
from xmtc.distributed.strategies.single import SingleConfig

StrategyConfig = Annotated[SingleConfig | DDPConfig | DeepSpeedConfig, Discriminator("kind")]
