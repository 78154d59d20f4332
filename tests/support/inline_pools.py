"""Pools of processes that work in the process of the test, as a start of two takes seconds of CPU."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import pytest


class _InlinePool:
    def __init__(self, **_: object) -> None: ...

    def __call__(
        self, tasks: Iterable[tuple[Callable[..., Any], Any, Any]]
    ) -> Iterator[Any]:
        for function, arguments, options in tasks:
            yield pickle.loads(cloudpickle.dumps(function))(
                *pickle.loads(pickle.dumps(arguments)), **options
            )


@pytest.fixture(scope="session", autouse=True)
def _inline_pools() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmtc.data.parallel.Parallel", _InlinePool)
        yield
