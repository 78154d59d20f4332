"""All code that uses Ray, which plain `pip install xmtc` does not install."""

from importlib.util import find_spec

from xmtc.errors import ConfigError

if find_spec("ray") is None:
    raise ConfigError(
        "clusters and several workers need Ray: pip install 'xmtc[train]'"
    )
