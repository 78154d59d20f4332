"""Which package the module `faiss` comes from: `faiss-cpu` and `faiss-gpu-…` install over each other."""

import importlib.metadata

from xmtc.preflight.finding import Check

CPU, GPU = "faiss-cpu", "faiss-gpu-cu12"
_KNOWN = ("faiss", CPU, "faiss-gpu", "faiss-gpu-cu11", GPU, "faiss-gpu-cuvs")


def faiss_packages() -> list[str]:
    """Installed packages that bring the module `faiss`."""
    return [name for name in _KNOWN if _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def check_faiss(packages: list[str], gpus: int) -> Check:
    """Whether there is exactly one of them, and the one for this machine.

    Args:
        packages: as `faiss_packages` says.
        gpus: GPUs that this machine has.
    """
    if not packages:
        return Check("faiss", "missing", "not installed; finds hard negatives and shortlists", f"pip install {CPU}")
    if len(packages) > 1:
        wanted = GPU if gpus else CPU
        return Check(
            "faiss",
            "missing",
            f"{' and '.join(packages)} are installed, and each overwrites files of the other",
            f"pip uninstall -y {' '.join(packages)}, then pip install {wanted}",
        )
    detail = f"{packages[0]} {importlib.metadata.version(packages[0])}"
    if gpus and packages[0] == CPU:
        fix = f"for indexes on the GPU in training: pip uninstall -y {CPU}, then pip install {GPU}"
        return Check("faiss", "note", f"{detail}: indexes are built and searched on the CPU", fix)
    return Check("faiss", "ok", detail)
