"""State of one running or ended job from its logs: incremental reading, iteration times, settings, rules. Pure."""
