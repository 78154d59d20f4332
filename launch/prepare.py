"""`ray job submit -- python launch/prepare.py …`: the command `xmtc prepare`."""

import sys

from xmtc.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "prepare")
    main()
