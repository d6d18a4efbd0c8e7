"""The option table and the settings file."""
