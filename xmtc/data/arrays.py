"""Types of arrays that several scorers share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Matrix = Any
"""A `scipy.sparse.csr_array`, or a `csc_array` where a name ends in a chunk of labels: SciPy's type stubs know neither
the two dimensions of its shape nor what its operators return."""
