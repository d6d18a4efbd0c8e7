"""The Textual app: one front end of a session. Nothing else of fabtui imports textual."""
