"""Small widgets that views share."""
