"""Views: the main screen and the screens that it opens."""
