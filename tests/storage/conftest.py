from collections.abc import Iterator

import pytest

from s3_server import S3Server, s3


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[S3Server]:
    with s3(tmp_path_factory.mktemp("home")) as running:
        yield running
