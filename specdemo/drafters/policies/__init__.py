"""Policies for the length of drafts, and the forecasts and calibration that they use."""
