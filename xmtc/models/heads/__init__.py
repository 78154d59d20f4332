"""Heads turn hidden states into one logit per label. `base` has their interface, `config` their settings."""
