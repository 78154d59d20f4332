"""Corpora, runs and models at a URI (`s3://`, `gs://`, `hdfs://`, `file://`): worked on in local copies.

Everything else in xmtc reads and writes local files. A `Mirror` keeps a local directory and a remote one the same; what
marks a directory as whole (`manifest.json`, `run.json`) is copied last.
"""
