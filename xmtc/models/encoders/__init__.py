"""Encoders: from tokens to hidden states. `base` says what an encoder is, `config` what its settings are."""
