"""A Hugging Face Space from one command: a plan, what carries it out on the hub, and a first visit."""
