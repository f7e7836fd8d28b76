"""What happened in a run: events, their JSON-lines form, and every metric. Standard library only."""
