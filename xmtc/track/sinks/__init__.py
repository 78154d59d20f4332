"""Further places that the metrics of a run are written to."""
