"""The recurrence on a GPU: kernels in Triton, which machines without a GPU do not need."""
