"""The bodies of requests and responses."""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from xmtc.fusion.config import Rule
from xmtc.predict.evidence import Kind


class Body(BaseModel):
    """Base of request bodies: unknown fields and type conversions are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


DocumentText = Annotated[str, Field(description="A document.")]
_Value = str | int | float | bool
DocumentFields = Annotated[
    dict[str, _Value | list[_Value | None] | None],
    Field(
        min_length=1,
        description="A document by its fields, and by the values of its categories if they are known.",
    ),
]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Filter = Annotated[str, Field(min_length=1, max_length=4096)]


Document = Annotated[
    Annotated[DocumentText, Tag("text")] | Annotated[DocumentFields, Tag("fields")],
    Discriminator(lambda document: "fields" if isinstance(document, dict) else "text"),
    Field(description="A text, which is the last field, or a text for each field."),
]


class PredictBody(Body):
    """Texts to label."""

    texts: Annotated[list[Document], Field(min_length=1)]
    top_k: Annotated[
        int | None, Field(ge=1, description="Maximum number of labels per text.")
    ] = None
    threshold: Annotated[
        Probability | Literal["tuned"] | Rule | None,
        Field(
            description="Only labels with at least this probability; `tuned`: labels that the model predicts; a rule, "
            "such as `macro` or `precision=0.9`: labels that this rule predicts."
        ),
    ] = None
    evidence: Annotated[
        bool,
        Field(
            description="Also return what supports each label most: words, its name, and training documents."
        ),
    ] = False
    include: Annotated[
        list[Filter] | None,
        Field(
            description="Only these labels; `branch:LABEL` is a label with all its descendants."
        ),
    ] = None
    exclude: Annotated[
        list[Filter], Field(description="Not these labels and branches.")
    ] = []
    language: Annotated[
        str | None,
        Field(max_length=20, description="Language of the names, such as de."),
    ] = None
    hierarchy: Annotated[
        bool, Field(description="Also return the broader labels of each label.")
    ] = False


Rounded = Annotated[float, AfterValidator(lambda value: round(value, 6))]


class EvidencePart(BaseModel):
    """What supports a label; `contribution` is its share of the label's logit. Only words have a place in the text."""

    model_config = ConfigDict(from_attributes=True)
    text: str
    contribution: Rounded
    start: int
    end: int
    field: str
    kind: Kind


class PredictedLabel(BaseModel):
    """A label of a text."""

    model_config = ConfigDict(from_attributes=True)
    label: str
    name: str
    score: Rounded
    predicted: bool
    evidence: list[EvidencePart] = []


class ExpectedAnswer(BaseModel):
    """What to expect of the labels that a text gets; of none, the precision is null and the others are 0."""

    model_config = ConfigDict(from_attributes=True)
    precision: Rounded | None
    recall: Rounded
    f1: Rounded


class Answerer(BaseModel):
    """What answers: a version of a model, the version of its vocabulary, and the rule of its decision."""

    model: str
    version: str
    vocabulary: str
    rule: str


class PredictAnswer(Answerer):
    """The labels of each text, best first, what to expect of those that it gets, and whether that releases it."""

    predictions: list[list[PredictedLabel]]
    expected: list[ExpectedAnswer]
    release: Annotated[list[bool], Field(description="Empty if the server has no bar.")]
    broader: Annotated[
        dict[str, list[str]],
        Field(
            description="By label, the names of its broader labels, the topmost first; empty unless requested."
        ),
    ] = {}


class LabelAnswer(BaseModel):
    """A label of the model, and the number of its training documents."""

    label: str
    name: str
    train_count: int
    broader: Annotated[
        list[str], Field(description="Names of its broader labels, the topmost first.")
    ] = []


class LabelsAnswer(BaseModel):
    """Labels that match a search, best match first."""

    labels: list[LabelAnswer]


class ServedModel(Answerer):
    """What answers for a model, and all its versions with their figures on dev."""

    labels: int
    versions: dict[str, dict[str, float]]


class ModelsAnswer(BaseModel):
    """All models; the first answers requests that choose none."""

    models: list[ServedModel]


class SwitchBody(Body):
    """The version of a model that should answer; null: the one that the folder says, read again."""

    version: str | None = None


class ModelAnswer(Answerer):
    """The model, and the server's settings."""

    task: str
    labels: int
    xmtc: str
    annotations: bool
    queue: bool
    evidence: bool
    fields: list[str]
    categories: list[str]
    hierarchy: Annotated[bool, Field(description="Whether labels have broader labels.")]
    category_values: Annotated[
        dict[str, list[str]],
        Field(
            description="By category, the values that the model knows; none if it knows too many to list."
        ),
    ]
    languages: list[str]


class Suggested(Body):
    """A label that the model suggested to a person."""

    label: str
    score: Probability
    predicted: bool
    words: Annotated[
        list[Annotated[str, Field(max_length=100)]], Field(max_length=10)
    ] = []


class Review(Body):
    """What a person saw and did; a suggested label that is neither among the labels nor rejected was not judged."""

    suggested: Annotated[list[Suggested], Field(max_length=1000)]
    rejected: Annotated[
        list[str], Field(description="Labels that the person judged not to fit.")
    ] = []
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    version: Annotated[
        str | None,
        Field(
            max_length=200, description="Version of the model. Default: the current."
        ),
    ] = None


class AnnotationBody(Body):
    """A document with its correct labels."""

    text: Document
    labels: list[str]
    id: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1000,
            description="Identifier of the document. Default: made from its text.",
        ),
    ] = None
    review: Review | None = None
    complete: Annotated[
        bool,
        Field(
            description="Without `review`: whether no other label fits. If false, other labels count as not judged."
        ),
    ] = False

    @model_validator(mode="after")
    def _judges_in_one_way(self) -> Self:
        if self.complete and self.review is not None:
            raise ValueError(
                "complete: a review says what was judged; leave complete out"
            )
        return self


class AnnotationAnswer(BaseModel):
    """The saved annotation's id, and the number of annotations now."""

    id: str
    saved: int


class NextAnswer(BaseModel):
    """A document to annotate. `id` and `text` are null if none is left; `waiting` counts documents not yet ranked."""

    id: str | None
    text: str | dict[str, str | list[str]] | None
    left: int
    waiting: int
