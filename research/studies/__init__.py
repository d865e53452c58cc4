"""Studies around the paper: what they train, and the tables made of them."""
