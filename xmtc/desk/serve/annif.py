"""The paths of Annif's REST API, which lets its clients work unchanged. The models are the projects.

Names of paths and fields are those of Annif's published OpenAPI description, version v1.
"""

from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from pydantic import BaseModel, Field

from xmtc.data.languages import language_probabilities
from xmtc.data.pretrained import UNKNOWN_LANGUAGE
from xmtc.desk.serve.batcher import MAX_TOP_K, PredictOptions
from xmtc.desk.serve.models import chosen, models_of
from xmtc.desk.serve.refusals import RequestError
from xmtc.desk.serve.routes import StrictRoute, check_characters
from xmtc.desk.serve.service import SentDocument, Service
from xmtc.predict.predictions import Expected, Prediction, Predictions
from xmtc.predict.text_scorer import NoTokensError

MAX_DOCUMENTS = 32
_LIMIT = 10
_METADATA = "metadata_"
_UNDETERMINED = "und"
"""Of BCP 47: the texts on which a model was tried had no one language, or it remembers none."""
_MOST_TEXTS = 0.5
"""Share of texts from which on their language is the model's."""
Limit = Annotated[int, Field(ge=0)]
Threshold = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class AnnifText(BaseModel):
    """A text, which is the last field of a document; metadata may have its other fields and its categories."""

    text: str
    metadata: dict[str, str] | None = None

    def document(self, service: Service) -> dict[str, str]:
        """Return the fields of the document; those without a text are empty."""
        fields = service.model.info.fields
        return (
            dict.fromkeys(fields, "") | (self.metadata or {}) | {fields[-1]: self.text}
        )


class AnnifDocument(AnnifText):
    """A document with an optional identifier."""

    document_id: str | None = None


class AnnifDocuments(BaseModel):
    """The body of suggest-batch."""

    documents: Annotated[list[AnnifDocument], Field(max_length=MAX_DOCUMENTS)]


class Subject(BaseModel):
    """A label; `label` is ignored."""

    uri: str
    label: str | None = None


class IndexedDocument(AnnifText):
    """A document with its correct labels."""

    subjects: list[Subject] = []


async def project(request: Request, project_id: str) -> Service:
    """Return what answers for a project."""
    return await chosen(request, project_id)


class LanguageQuestion(BaseModel):
    """A text, and the languages that it may be in."""

    text: str
    languages: Annotated[
        list[Annotated[str, Field(max_length=20)]], Field(min_length=1, max_length=100)
    ]


Project = Annotated[Service, Depends(project)]
annif_router = APIRouter(prefix="/v1", tags=["Annif"], route_class=StrictRoute)


@annif_router.get("/")
def show_info() -> dict[str, str]:
    """Describe the API."""
    return {"title": "Annif REST API, served by xmtc", "version": version("xmtc")}


@annif_router.get("/vocabs")
def list_vocabs(request: Request) -> dict[str, Any]:
    """List the vocabularies: the labels of each model."""
    return {
        "vocabs": [
            _vocabulary(service) for service in models_of(request).services.values()
        ]
    }


@annif_router.post("/detect-language")
def detect_language(body: LanguageQuestion, request: Request) -> dict[str, Any]:
    """Say how probable each of several languages is for a text; null stands for all others."""
    models_of(request).first.check_texts([body.text])
    probabilities = language_probabilities(body.text)
    unknown = [language for language in body.languages if language not in probabilities]
    if unknown:
        message = f"languages: {unknown[0]!r} is not recognised; there are {', '.join(sorted(probabilities))}"
        raise RequestError(HTTPStatus.BAD_REQUEST, message)
    asked: dict[str | None, float] = {
        language: probabilities[language] for language in body.languages
    }
    asked[None] = max(0.0, 1 - sum(asked.values()))
    ranked = sorted(asked.items(), key=lambda item: -item[1])
    return {
        "results": [
            {"language": language, "score": round(score, 6)}
            for language, score in ranked
        ]
    }


@annif_router.get("/projects")
def list_projects(request: Request) -> dict[str, Any]:
    """List the projects: the models."""
    return {
        "projects": [
            _project(service) for service in models_of(request).services.values()
        ]
    }


@annif_router.get("/projects/{project_id}")
def show_project(service: Project) -> dict[str, Any]:
    """Describe a project."""
    return _project(service)


@annif_router.post("/projects/{project_id}/suggest")
async def suggest(
    request: Request,
    service: Project,
    text: Annotated[str, Form()],
    limit: Annotated[Limit, Form()] = _LIMIT,
    threshold: Annotated[Threshold, Form()] = 0.0,
    language: Annotated[str | None, Form()] = None,
) -> dict[str, Any]:
    """Suggest labels for a text; the form may have `metadata_NAME`."""
    metadata = {}
    for name, value in (await request.form()).items():
        check_characters("the form", f"{name}{value}")
        if name.startswith(_METADATA):
            metadata[name.removeprefix(_METADATA)] = str(value)
    document = AnnifText(text=text, metadata=metadata)
    (results,) = await _suggestions(service, [document], limit, threshold, language)
    return {"results": results}


@annif_router.post("/projects/{project_id}/suggest-batch")
async def suggest_batch(
    service: Project,
    body: AnnifDocuments,
    limit: Annotated[Limit, Query()] = _LIMIT,
    threshold: Annotated[Threshold, Query()] = 0.0,
    language: Annotated[str | None, Query()] = None,
) -> list[dict[str, Any]]:
    """Suggest labels for up to 32 texts."""
    suggestions = await _suggestions(
        service, body.documents, limit, threshold, language
    )
    return [
        {"document_id": document.document_id, "results": results}
        for document, results in zip(body.documents, suggestions, strict=True)
    ]


@annif_router.post("/projects/{project_id}/learn", status_code=HTTPStatus.NO_CONTENT)
async def learn(
    request: Request, service: Project, body: list[IndexedDocument]
) -> Response:
    """Append documents to the annotations, with all subjects that fit them: others count as judged not to fit.

    The model changes only when you train it with them.
    """
    documents = [
        SentDocument(
            None,
            document.document(service),
            [subject.uri for subject in document.subjects],
            complete=True,
        )
        for document in body
    ]
    await service.save(documents, request)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _suggestions(
    service: Service,
    documents: Sequence[AnnifText],
    limit: int,
    threshold: float,
    language: str | None,
) -> list[list[dict[str, Any]]]:
    if not documents:
        return []
    service.model.labels.names_in(language)
    options = PredictOptions(max(1, min(limit, MAX_TOP_K)), threshold)
    texts = service.model.scorer.texts(
        [document.document(service) for document in documents]
    )
    predictions = service.model.translated(
        await _predictions(service, texts, options), language
    )
    return [
        [_suggestion(service, prediction) for prediction in labels[:limit]]
        for labels in predictions
    ]


async def _predictions(
    service: Service, texts: Sequence[str], options: PredictOptions
) -> list[Predictions]:
    """Find the labels of texts. A text in which there is nothing to read gets none, as in Annif."""
    nothing = Expected(None, 0.0, 0.0)
    found = [Predictions([], nothing) for _ in texts]
    places = [place for place, text in enumerate(texts) if text.strip()]
    while places:
        try:
            answers = await service.predict([texts[place] for place in places], options)
        except NoTokensError as error:
            del places[error.row]
        else:
            for place, labels in zip(places, answers, strict=True):
                found[place] = labels
            break
    return found


def _suggestion(service: Service, prediction: Prediction) -> dict[str, Any]:
    """Describe a suggested label as Annif does. A label that is no IRI is its own notation, unless it has one."""
    table = service.model.labels
    notation = (
        ""
        if table.notations is None
        else table.notations[table.index(prediction.label)]
    )
    if not notation and "://" not in prediction.label:
        notation = prediction.label
    return {
        "uri": prediction.label,
        "label": prediction.name,
        "notation": notation or None,
        "score": prediction.score,
    }


def _project(service: Service) -> dict[str, Any]:
    return {
        "project_id": service.name,
        "name": service.name,
        "language": _language_of(service),
        "backend": {"backend_id": "xmtc"},
        "vocab": _vocabulary(service),
        "vocab_language": None,
        "is_trained": True,
        "modification_time": None,
    }


def _language_of(service: Service) -> str:
    """Return the language of most texts on which the model was tried."""
    profile = service.model.profile
    languages = {} if profile is None else profile.kinds.get("languages", {})
    if not languages:
        return _UNDETERMINED
    language = max(languages, key=lambda code: languages[code])
    is_clear = language != UNKNOWN_LANGUAGE and languages[language] > _MOST_TEXTS * sum(
        languages.values()
    )
    return language if is_clear else _UNDETERMINED


def _vocabulary(service: Service) -> dict[str, Any]:
    labels = service.model.labels
    return {
        "vocab_id": service.name,
        "languages": list(labels.translations),
        "size": len(labels),
        "loaded": True,
    }
