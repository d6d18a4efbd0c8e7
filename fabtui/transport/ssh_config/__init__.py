"""The ssh configuration of the user, resolved."""
