"""Poolings: from a document's hidden states to one vector."""
