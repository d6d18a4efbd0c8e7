"""Terminal output: ANSI strips, driver, hangup; everything that touches Textual internals."""
