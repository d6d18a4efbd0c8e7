"""The screen in a browser: a web server on this machine alone, and the app behind it."""
