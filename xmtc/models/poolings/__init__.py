"""Poolings turn a document's hidden states into one vector."""
