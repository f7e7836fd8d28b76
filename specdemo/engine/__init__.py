"""The engine: one loop, pure verifiers, the target and its cache."""
