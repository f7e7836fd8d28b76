"""Measured comparisons: prompt suites, lanes and reports."""
