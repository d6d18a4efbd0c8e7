"""Tests of the documentation: code blocks, tutorial, navigation and links."""
