"""The paper's experiments: what it published, which runs make its tables, and what of it holds."""
