"""Heads: from hidden states to one logit per label. `base` says what a head is, `config` what its settings are."""
