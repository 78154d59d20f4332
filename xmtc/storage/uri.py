"""How a URI is distinguished from a local path."""

import re


def is_remote(path: str) -> bool:
    """Whether a path of the configuration is a URI, such as `s3://bucket/corpora/laws` or `file:///mnt/laws`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None
