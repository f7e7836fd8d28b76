"""Memory of drafters between steps and runs: earlier texts, token sequences, an online head."""
