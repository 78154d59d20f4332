"""`xmtc.Model`: an exported model that labels texts in this process."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xmtc.artefact.export import ModelParts, copy_model, load_model
from xmtc.artefact.hub import locate_model, push
from xmtc.artefact.info import ModelInfo, check_same
from xmtc.data.labels import LabelTable
from xmtc.errors import ConfigError
from xmtc.fusion.decision import Decision
from xmtc.fusion.ensemble import names_of
from xmtc.predict.arguments import as_count, as_labels, as_text, as_threshold
from xmtc.predict.evidence import Explanation
from xmtc.predict.filters import Threshold
from xmtc.predict.predictions import PredictedTexts, Predictions
from xmtc.predict.request import Request
from xmtc.predict.text_scorer import Documents, TextScorer, choose_device

_FIGURES = ("ndcg@5", "p@1", "micro_f1", "macro_f1")
"""Metrics of dev that a notebook shows."""


class Model:
    """An exported model, ready to label texts.

    Attributes:
        scorer: scores texts with the model's parts.
        folder: the model's folder on this machine; None if it was not loaded from one.
        profile: what is known of the texts of training and dev, or None.

    Args:
        parts: the loaded model.
        device: device to compute on.
        tokens_per_batch: see `from_pretrained`.
        bfloat16: see `from_pretrained`.
        folder: see above.

    Example:
        >>> model = xmtc.Model.from_pretrained("runs/quickstart/model")
        >>> model.predict(["The text."], top_k=3)
    """

    def __init__(
        self,
        parts: ModelParts,
        device: torch.device,
        *,
        tokens_per_batch: int | None = None,
        bfloat16: bool | None = None,
        folder: Path | None = None,
    ) -> None:
        self.scorer = TextScorer(
            parts, device, tokens_per_batch=tokens_per_batch, bfloat16=bfloat16
        )
        self.profile = parts.profile
        self.folder = folder
        self._digest = parts.digest

    @classmethod
    def from_pretrained(
        cls,
        directory: str | Path,
        *,
        device: str = "auto",
        tokens_per_batch: int | None = None,
        bfloat16: bool | None = None,
    ) -> "Model":
        """Load a model that `xmtc train` exported.

        Args:
            directory: a run, the `model` folder of one, or `owner/name` on the Hugging Face Hub.
            device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` …
            tokens_per_batch: content tokens per batch, including padding; lower it if memory runs out. None: 4,096 on a
                CPU, where larger batches are slower, and 16,384 on a GPU.
            bfloat16: compute under bfloat16 autocast; None: on GPUs.

        Raises:
            CheckpointError: a file is missing or damaged.
            ConfigError: `directory` names no model, or there is no such device.
            StorageError: the Hub does not answer.
        """
        folder = locate_model(directory)
        parts = load_model(folder)
        return cls(
            parts,
            choose_device(device),
            tokens_per_batch=tokens_per_batch,
            bfloat16=bfloat16,
            folder=folder.absolute(),
        )

    def save(self, directory: str | Path) -> Path:
        """Copy the model's folder, replacing a model that is there.

        Args:
            directory: a new place, or that of another model.

        Returns:
            The new folder.

        Raises:
            ConfigError: the model has no folder, or the directory holds something that is not a model.
            CheckpointError: the model's folder has been removed, or holds another model now.
            StorageError: the directory cannot be written.
        """
        return copy_model(self._folder(), Path(directory), self._digest)

    def push_to_hub(self, repository: str, *, public: bool = False) -> str:
        """Upload the model to the Hugging Face Hub, and return its address.

        Args:
            repository: `owner/name`; it is created if needed, and an earlier model in it is replaced.
            public: whether everyone can read a new repository.

        Raises:
            ConfigError: the model has no folder, or the name is not a repository's.
            CheckpointError: the model's folder has been removed, or holds another model now.
            StorageError: the Hub does not answer, or refuses.
        """
        folder = self._folder()
        check_same(folder, self._digest)
        return push(folder, repository, public=public)

    def _folder(self) -> Path:
        if self.folder is None:
            raise ConfigError(
                "this model was not loaded from a folder, so there are no files to copy: export it first"
            )
        return self.folder

    def __repr__(self) -> str:
        """Say what the model is, in one line."""
        facts = (f"{name} {fact}" for name, fact in self._facts().items())
        return f"<xmtc.Model {self.info.name!r}: {'; '.join(facts)}>"

    def _repr_html_(self) -> str:
        facts = self._facts() | {
            f"{name} on dev": f"{self.info.dev[name]:.3f}"
            for name in _FIGURES
            if name in self.info.dev
        }
        rows = (
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(fact)}</td></tr>'
            for name, fact in facts.items()
        )
        return f"<table><caption>xmtc.Model {escape(self.info.name)}</caption>{''.join(rows)}</table>"

    def _facts(self) -> dict[str, str]:
        """Say what the model is: its labels, what scores them, what it reads and decides by."""
        model = self.info.model
        scorers = [f"head {model.head.kind}"] if model.head.scores else []
        scorers += names_of(model.scorers)
        return {
            "gives": f"{len(self.labels):,} labels",
            "scored by": ", ".join(scorers),
            "reads": f"{', '.join(self.info.fields)} up to {self.info.max_length:,} tokens",
            "decides by": f"the rule {self.decision.rule}",
            "device": str(self.scorer.device),
        }

    @property
    def info(self) -> ModelInfo:
        """The model's configuration and sizes."""
        return self.scorer.info

    @property
    def labels(self) -> LabelTable:
        """The labels that the model knows."""
        return self.scorer.labels

    @property
    def decision(self) -> Decision:
        """Which labels are predicted: the rule, and its thresholds."""
        return self.scorer.decision

    def predict(
        self,
        texts: Documents,
        top_k: int | None = None,
        *,
        evidence: bool = False,
        threshold: Threshold = None,
        least: int = 0,
        shortlist: int | None = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        language: str | None = None,
    ) -> PredictedTexts:
        """Predict the best labels of each text, best first.

        Args:
            texts: documents in a list, tuple, Series, Arrow or NumPy array, or iterator. A document is a text, or a
                mapping from the names of its fields (`info.fields`) to their texts, and from those of its categories
                (`info.categories`), which it may lack, to their values; in a table, it is a row. A plain text is the
                last field. The model reads each up to the maximum length in training.
            top_k: maximum number of labels per text; None is 10, or 1 for a single-label model. With `tuned` or a rule,
                None keeps all that it gives, up to 100; all K of `top_k=K`.
            evidence: also find what supports each label most: words, its name, and training documents.
            threshold: leave out labels below this probability. `tuned` leaves out labels that the model's decision does
                not give, and a rule (`macro`, `precision=0.9` …) those that this rule does not give; None keeps the
                `top_k` whatever their probability.
            least: keep this many labels per text whatever the threshold.
            shortlist: score this many labels per text, found by the model's index of labels; None scores all.
            include: the only labels to predict; `branch:LABEL` is a label with all its descendants; None: all.
            exclude: labels and branches not to predict.
            language: language of the names, such as `de`, of those in the label file; None: the usual names.

        Returns:
            The predictions of each text, in order; a list, which is also a table (`to_pandas`, `to_csv`).

        Raises:
            DataError: a text is empty or not a string, it lacks a field, or the model has no such label or language.
            ConfigError: a shortlist together with included labels, or a rule without outcomes of dev.
        """
        scorer = self.scorer
        self.labels.names_in(language)  # refuses a language before hours of scoring
        threshold = as_threshold(threshold)
        request = Request(
            top_k=scorer.default_top_k(threshold)
            if top_k is None
            else as_count(top_k, "top_k"),
            threshold=threshold,
            least=as_count(least, "least", 0),
            evidence=evidence,
            include=None if include is None else tuple(as_labels(include)),
            exclude=tuple(as_labels(exclude)),
            shortlist=shortlist,
        )
        scorer.check(request)
        documents = scorer.tokenise(scorer.texts(texts))
        # With evidence one by one, so that the figures are those of `explain`, whatever other texts there are.
        alone = [np.array([row]) for row in range(len(documents))] if evidence else None
        answer = scorer.score(documents, request, batches=alone)
        return PredictedTexts(
            self.translated(scorer.predictions(answer, request), language)
        )

    def translated(
        self, predictions: list[Predictions], language: str | None
    ) -> list[Predictions]:
        """Replace the names of labels by those in a language, where there are any; see `predict`.

        Raises:
            DataError: no label has a name in this language.
        """
        names = self.labels.names_in(language)
        if language is None:
            return predictions
        for labels in predictions:
            for place, prediction in enumerate(labels):
                name = names[self.labels.index(prediction.label)]
                labels[place] = prediction._replace(name=name or prediction.name)
        return predictions

    def explain(
        self,
        text: str | Mapping[str, Any],
        labels: Iterable[str] | str | None = None,
    ) -> list[Explanation]:
        """Explain the logits of one or several labels by the contribution of each word of the text.

        Args:
            text: a document: a text, or a mapping from the names of its fields to their texts.
            labels: a label, or several. None: those that are predicted, or the best one if none is.

        Returns:
            An explanation per label, in their order.

        Raises:
            DataError: the text is empty or not a string, or the model has no such label.
            ConfigError: the head gives no evidence.
        """
        joined = as_text(
            text,
            self.info.fields,
            categories=self.info.categories,
            longest=self.scorer.longest_document,
        )
        if labels is None:
            best = self.predict([text])[0]
            labels = [one.label for one in best if one.predicted] or [best[0].label]
        return self.scorer.explain(joined, self.labels.indices(as_labels(labels)))
