"""Hard negatives from a nearest-neighbour index over label vectors, refreshed in the background of training."""
