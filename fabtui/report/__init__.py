"""The text front end and the one-page reports: documents, and their writers."""
