"""Catalogues of error messages and next commands."""
