"""The plugins of the studies, imported without their entry points, which would join every family of this process."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "tools" / "plugins"

sys.path.insert(0, str(FOLDER))
try:
    import signal_controls
    import synthetic_source
finally:
    sys.path.remove(str(FOLDER))

__all__ = ["FOLDER", "signal_controls", "synthetic_source"]
