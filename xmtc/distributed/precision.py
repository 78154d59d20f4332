"""Which processors multiply bfloat16 matrices natively."""

import torch

_CPU_CAPABILITIES = ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16")


def native_bfloat16(*, gpu: bool) -> bool:
    """Whether this machine's GPU, or else its CPU, has instructions for products in bfloat16.

    Without them bfloat16 is emulated, and slower than float32.
    """
    if gpu:
        return torch.cuda.get_device_capability()[0] >= 8
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in _CPU_CAPABILITIES)
