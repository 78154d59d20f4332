"""What `xmtc score` and `xmtc explain` read in addition to files: the source of a configuration, by any reader."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from xmtc.config.load import load_config
from xmtc.data.readers import ReaderConfig
from xmtc.run.config import RunConfig


def split_inputs(inputs: Sequence[str]) -> tuple[list[str], Mapping[str, ReaderConfig]]:
    """Separate files from configurations (`.yaml`); return the files, and the configurations' readers by path.

    Raises:
        ConfigError: a configuration is wrong.
    """
    configurations = [given for given in inputs if Path(given).suffix in (".yaml", ".yml")]
    files = [given for given in inputs if given not in configurations]
    return files, {given: load_config(RunConfig, Path(given), []).data.source for given in configurations}
