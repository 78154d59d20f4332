"""`ray job submit -- python launch/evaluate.py …`: the command `xmtc evaluate`."""

import sys

from xmtc.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "evaluate")
    main()
