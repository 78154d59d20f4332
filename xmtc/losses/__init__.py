"""Losses, one per file; each returns a sum and the number of documents in it. Their settings are in `config`."""
