"""Decoders run a target's layers: transformers' own pass, the lean pass, CUDA graphs, the compiled pass."""
