"""Models that draft: the compact draft model, trained drafters, the quantised copy."""
