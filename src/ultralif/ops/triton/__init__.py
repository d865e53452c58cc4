"""The recurrence on a GPU: kernels in Triton, which a machine without a GPU need not have."""
