"""Neurons that implement other readings of the paper, and recipes for training them."""
