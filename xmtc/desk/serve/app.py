"""The ASGI application."""

from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST

from xmtc.data.labels import LabelTable
from xmtc.desk.serve import annif, bodies
from xmtc.desk.serve.batcher import MAX_TOP_K, PredictOptions
from xmtc.desk.serve.guard import Guard
from xmtc.desk.serve.hierarchy import broader_names
from xmtc.desk.serve.models import Models, chosen, models_of
from xmtc.desk.serve.refusals import RESPONSES, RequestError, add_handlers
from xmtc.desk.serve.routes import KnownQueryRoute
from xmtc.desk.serve.service import SentDocument, Service
from xmtc.predict.predictions import Predictions
from xmtc.predict.predictor import Model

_FILTER_ENTRIES = 10_000
_LISTED_VALUES = 1_000
_ASSETS = Path(__file__).parent / "assets"

router, page_router = (
    APIRouter(route_class=KnownQueryRoute),
    APIRouter(include_in_schema=False),
)
Chosen = Annotated[Service, Depends(chosen)]


def make_app(models: Models) -> FastAPI:
    """Make the application that serves models. Host and port in their settings matter only to what runs it."""
    config, title = models.config, f"xmtc: {', '.join(models.services)}"
    app = FastAPI(
        title=title,
        version=version("xmtc"),
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _: models.answering(),
    )
    app.state.models = models
    app.add_middleware(
        Guard, limits=config.limits, token=config.token, metrics=models.first.metrics
    )
    add_handlers(app)
    for one in (router, annif.annif_router, page_router):
        app.include_router(one, responses=RESPONSES)
    app.mount("/assets", StaticFiles(directory=_ASSETS))
    return app


@router.post("/predict")
@router.post("/models/{model}/predict")
async def predict(
    request: Request, body: bodies.PredictBody, model: str | None = None
) -> bodies.PredictAnswer:
    """Label texts."""
    service = await chosen(
        request, model
    )  # as a dependency, it would take longer than all that it does
    asked = service.model
    top_k = body.top_k or asked.scorer.default_top_k(body.threshold)
    if top_k > MAX_TOP_K:
        raise RequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"top_k: {top_k}: ask for at most {MAX_TOP_K}",
        )
    include, exclude = (
        None if body.include is None else tuple(body.include),
        tuple(body.exclude),
    )
    for name, entries in (("include", include or ()), ("exclude", exclude)):
        if len(entries) > _FILTER_ENTRIES:
            message = f"{name}: more than {_FILTER_ENTRIES:,} entries: name branches, or fewer labels"
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    asked.labels.names_in(body.language)
    options = PredictOptions(top_k, body.threshold, body.evidence, include, exclude)
    found = asked.translated(
        await service.predict(asked.scorer.texts(body.texts), options), body.language
    )
    rule = (
        body.threshold
        if isinstance(body.threshold, str) and body.threshold != "tuned"
        else asked.decision.rule
    )
    about = service.about | {"rule": rule, "release": service.released(found)}
    expected = [one.expected for one in found]
    broader = _broader(asked.labels, found, body.language) if body.hierarchy else {}
    return bodies.PredictAnswer.model_validate(
        about | {"predictions": found, "expected": expected, "broader": broader}
    )


def _broader(
    table: LabelTable, predictions: Sequence[Predictions], language: str | None
) -> dict[str, list[str]]:
    """Name the broader labels of all predicted labels that have some."""
    names = table.names_in(language)
    labels = {prediction.label for labels in predictions for prediction in labels}
    paths = {label: broader_names(table, table.index(label), names) for label in labels}
    return {label: path for label, path in paths.items() if path}


def _category_values(model: Model) -> dict[str, list[str]]:
    """List the values of each category that the model has seen in training, unless there are too many for a list."""
    ensemble = model.scorer.ensemble
    terms = [] if ensemble is None else ensemble.vocabulary.terms
    values = {}
    for name in model.info.categories:
        own = [
            term.removeprefix(f"{name}=")
            for term in terms
            if term.startswith(f"{name}=")
        ]
        values[name] = sorted(own) if len(own) <= _LISTED_VALUES else []
    return values


@router.get("/labels")
@router.get("/models/{model}/labels")
def labels(
    service: Chosen,
    query: Annotated[
        str, Query(max_length=200, description="Part of an id or a name.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    language: Annotated[
        str | None,
        Query(max_length=20, description="Language of the names, such as de."),
    ] = None,
) -> bodies.LabelsAnswer:
    """Search labels; without a query, the most frequent ones."""
    table = service.search.labels
    names = table.names_in(language)
    found = [
        bodies.LabelAnswer(
            label=table.labels[at],
            name=names[at] or table.names[at] or table.labels[at],
            train_count=int(table.train_counts[at]),
            broader=broader_names(table, at, names),
        )
        for at in service.search.find(query, limit)
    ]
    return bodies.LabelsAnswer(labels=found)


@router.get("/model")
def about(service: Chosen) -> bodies.ModelAnswer:
    """Describe the model and the server's settings."""
    model = service.model
    return bodies.ModelAnswer(
        **service.about,
        task=model.info.task,
        labels=len(model.labels),
        xmtc=version("xmtc"),
        annotations=service.annotations is not None,
        queue=service.worklist is not None,
        evidence=service.gives_evidence,
        fields=list(model.info.fields),
        categories=list(model.info.categories),
        hierarchy=model.labels.parents is not None,
        category_values=_category_values(model),
        languages=list(model.labels.translations),
    )


@router.get("/models")
def describe(request: Request) -> bodies.ModelsAnswer:
    """List the models: what answers, and all versions with their figures on dev."""
    return bodies.ModelsAnswer.model_validate({"models": models_of(request).describe()})


@router.post("/models/{model}")
async def switch(
    request: Request, model: str, body: bodies.SwitchBody
) -> bodies.ServedModel:
    """Let a version answer, if it passes the checks."""
    models = models_of(request)
    await models.switch(model, body.version)
    return bodies.ServedModel.model_validate(
        next(one for one in models.describe() if one["model"] == model)
    )


@router.post("/annotations")
async def annotate(
    request: Request, body: bodies.AnnotationBody, service: Chosen
) -> bodies.AnnotationAnswer:
    """Save a document with its correct labels.

    Other labels count as not judged, unless `review` has rejected them, or `complete` says that no other label fits.
    A document without `id` is known by its text, and each person can save a document once.
    """
    review = None if body.review is None else body.review.model_dump()
    document = SentDocument(body.id, body.text, body.labels, body.complete)
    (doc_id,), saved = await service.save([document], request, review)
    return bodies.AnnotationAnswer(id=doc_id, saved=saved)


@router.post("/queue/next")
async def next_document(
    service: Chosen, skip: Annotated[str | None, Query(max_length=1000)] = None
) -> bodies.NextAnswer:
    """Get a document to annotate; `skip` moves one to the end of the list."""
    worklist = service.worklist
    if worklist is None:
        raise RequestError(
            HTTPStatus.NOT_FOUND,
            "there is no queue: start the server with --queue FILE",
        )
    doc_id, text = worklist.next(skip) or (None, None)
    if text is not None and len(cells := service.model.info.named.cells(text)) > 1:
        text = cells
    return bodies.NextAnswer(
        id=doc_id, text=text, left=len(worklist), waiting=worklist.waiting
    )


@router.get("/health")
async def health() -> dict[str, str]:
    """Whether the process is alive."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(request: Request) -> dict[str, str]:
    """Whether the server accepts requests."""
    if not models_of(request).first.batcher.ready:
        raise RequestError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the queue is full, or the server is stopping",
        )
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return the metrics for Prometheus."""
    return Response(
        models_of(request).first.metrics.page(), media_type=CONTENT_TYPE_LATEST
    )


@page_router.get("/")
def label_page() -> Response:
    """Return the page on which people try the model and annotate."""
    return FileResponse(_ASSETS / "label.html")


@page_router.get("/docs")
def docs_page() -> Response:
    """Return the description of the API."""
    return FileResponse(_ASSETS / "docs.html")
