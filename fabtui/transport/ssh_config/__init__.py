"""Resolution of hosts through the user's ssh configuration."""
