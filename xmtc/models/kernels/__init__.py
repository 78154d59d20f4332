"""Kernels of label-wise attention; the entry points are in `dispatch`."""
