"""The paper's experiments: published numbers, the runs of each table, and verdicts on its claims."""
