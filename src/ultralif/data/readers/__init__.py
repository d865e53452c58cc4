"""Readers for the published dataset formats."""
