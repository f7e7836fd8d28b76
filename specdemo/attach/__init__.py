"""Servers of other programs: their streams, logs and reports as rounds of drafts."""
