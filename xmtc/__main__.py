"""`python -m xmtc`: the command line, where no script is installed."""

from xmtc.cli import main

if __name__ == "__main__":
    main()
