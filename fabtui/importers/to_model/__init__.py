"""From parsed output to a model."""
