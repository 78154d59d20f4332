"""The templates of the report: everything that they are given is escaped, and a missing value is an error."""

import functools

from jinja2 import Environment, PackageLoader, StrictUndefined


@functools.cache
def environment() -> Environment:
    """Make the environment of the templates in `assets`."""
    return Environment(
        loader=PackageLoader("xmtc.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
