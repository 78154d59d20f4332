"""`xmtc sweep`: train many configurations and seeds, and compare them.

A sweep is a thin layer over `train_run`. Every cell and seed is a run directory of its own, so that finished runs are
skipped, interrupted ones continue, and everything that reads runs reads these too.
"""
