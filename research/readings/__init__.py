"""Neurons of other readings of the paper, and the recipes that train them."""
