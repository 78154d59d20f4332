"""Which tokens speak for which label: counts, signals, rankings."""
