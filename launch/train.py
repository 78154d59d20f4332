"""`ray job submit -- python launch/train.py …`: the command `xmtc train`."""

import sys

from xmtc.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "train")
    main()
