"""Importers: recognise saved outputs of benchmarks and tools, parse them, and build a model."""
