"""Every test runs offline and on few threads."""

import gc
import os
import signal
import sys
from pathlib import Path

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # three test processes share two cores
os.environ.setdefault(
    "RAY_worker_niceness", "0"
)  # else Ray's workers starve beside any other work
os.environ.setdefault(
    "RAY_raylet_start_wait_time_s", "60"
)  # on a busy machine, a node takes more than 30 s to start

# A shell that starts the tests in the background ignores SIGINT, and `nohup` ignores SIGHUP. Every command that a test
# starts would inherit that, and the signals that tests send would do nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

sys.path.insert(0, str(Path(__file__).parent / "support"))

pytest_plugins = ["inline_pools", "whole_run", "commands", "tools_plugins"]

settings.register_profile(
    "tests", deadline=None
)  # a busy machine takes longer than 200 ms for an example
settings.load_profile("tests")
settings.register_profile(
    "fuzz", max_examples=3_000, deadline=None, print_blob=True
)  # make fuzz


def pytest_collection_finish() -> None:
    """Let garbage collection leave out what imports made; every stage of a run collects."""
    gc.collect()
    gc.freeze()
