"""Questions to, and the watch over, a job that runs."""
