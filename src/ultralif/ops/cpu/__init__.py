"""The recurrence on a CPU: kernels in C, built on first use if the wheel contains none."""
