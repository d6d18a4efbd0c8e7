"""Pictures of results as SVG and PNG: matrices, connectivity, busbw curves. No Textual, no files, no network."""
