"""Drafters that others have published: from a folder or the hub, a reader for each family."""
