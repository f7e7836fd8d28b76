"""How it happens: one loop, pure verifiers, the target and its cache."""
