"""The pages in the browser: labelling at `/`, the API's description at `/docs`. Static files; they hold no data."""

from importlib.resources import files

from fastapi import APIRouter, Response

from xmtc.serve.refusals import RequestError

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_ASSETS = ("page.css", "label.js", "docs.js", "client.js", "icon.svg")

page_router = APIRouter(include_in_schema=False)


def _asset(name: str) -> Response:
    content = (files("xmtc.serve") / "assets" / name).read_bytes()
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]])


@page_router.get("/")
def label_page() -> Response:
    """Return the page on which people try the model and annotate."""
    return _asset("label.html")


@page_router.get("/docs")
def docs_page() -> Response:
    """Return the description of the API."""
    return _asset("docs.html")


@page_router.get("/assets/{name}")
def asset(name: str) -> Response:
    """Return a static file of the pages."""
    if name not in _ASSETS:
        raise RequestError(404, "no such file")
    return _asset(name)
