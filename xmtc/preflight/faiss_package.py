"""Find the package of the module `faiss`: `faiss-cpu` and `faiss-gpu-…` overwrite each other's files."""

import importlib.metadata

from xmtc.preflight.finding import Check

CPU, GPU = "faiss-cpu", "faiss-gpu-cu12"
_KNOWN = ("faiss", CPU, "faiss-gpu", "faiss-gpu-cu11", GPU, "faiss-gpu-cuvs")


def faiss_packages() -> list[str]:
    """List installed packages that contain the module `faiss`."""
    return [name for name in _KNOWN if _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def check_faiss(packages: list[str], gpus: int) -> Check:
    """Check that exactly one package is installed, and that it suits this machine.

    Args:
        packages: result of `faiss_packages`.
        gpus: number of GPUs in this machine.
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
