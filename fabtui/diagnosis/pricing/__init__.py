"""What bandwidths that were measured between pairs cost a collective: docs/price.md."""
