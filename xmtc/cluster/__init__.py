"""All of Ray, which `pip install xmtc` alone does not bring."""

from importlib.util import find_spec

from xmtc.errors import ConfigError

if find_spec("ray") is None:
    raise ConfigError("clusters and several workers need Ray: pip install 'xmtc[train]'")
