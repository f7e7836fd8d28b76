"""Benchmarks: prompt suites, variants, audits and reports."""
