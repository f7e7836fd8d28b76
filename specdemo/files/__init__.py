"""Weights as files: the catalogue, the hub, the embedded wheel, conversion, the local store."""
