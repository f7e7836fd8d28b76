"""One engine for each process, and one conversation for each user."""
