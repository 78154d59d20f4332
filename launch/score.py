"""`ray job submit -- python launch/score.py MODEL INPUT… --output DIR`: `xmtc score --engine ray`."""

import sys

from xmtc.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["score", "--engine", "ray"]
    main()
