"""Readers of the formats that datasets are published in."""
