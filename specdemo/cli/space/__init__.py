"""Create a Hugging Face Space: a plan, its upload, and a first visit."""
