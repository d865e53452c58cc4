"""The recurrence on a CPU: kernels in C, built on first use where a wheel brings none."""
