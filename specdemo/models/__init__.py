"""Where weights come from: the catalogue, the sources of model files, and loading in 4-bit."""
