"""Settings, errors and paths: values that every other room may import."""
