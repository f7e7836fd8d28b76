"""Where models come from and how they are loaded as a pair."""
