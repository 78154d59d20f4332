"""Callbacks observe the training loop, one concern per file. Their settings are in `config`."""
