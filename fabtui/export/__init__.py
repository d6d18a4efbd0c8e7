"""From a model to files: CSV and JSON, and back to a DataFrame."""
