"""Corpora, runs and models at a URI (`s3://`, `gs://`, `hdfs://`, `file://`): worked on in local copies.

Everything else in xmtc reads and writes local files. A `Mirror` keeps a local directory and a remote one the same; what
marks a directory as whole (`manifest.json`, `run.json`) travels last.
"""

from xmtc.storage.config import StorageConfig
from xmtc.storage.mirror import Mirror
from xmtc.storage.probe import answered, probe
from xmtc.storage.remote import Remote, is_denied, is_remote

__all__ = ["Mirror", "Remote", "StorageConfig", "answered", "is_denied", "is_remote", "probe"]
