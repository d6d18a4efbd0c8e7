"""One-page reports of sessions and of outputs of other tools, as HTML and as Markdown."""
