"""Our own studies: training runs, and tables of their results."""
