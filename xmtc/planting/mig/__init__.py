"""Which tokens mark which label: counts, signals, rankings."""
