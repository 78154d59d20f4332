"""Print the number of one training worker among the processes below a given one; nothing where there is none.

.venv/bin/python tools/check/find_worker.py PID
"""

import sys

import psutil


def main() -> None:
    """Look below the process whose number is the argument."""
    for process in psutil.Process(int(sys.argv[1])).children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith("ray::") and "RayTrainWorker" in title:
            print(process.pid)
            return


if __name__ == "__main__":
    main()
