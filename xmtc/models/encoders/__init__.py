"""Encoders turn tokens into hidden states. `base` has their interface, `config` their settings."""
