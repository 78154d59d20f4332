"""A tiny model, and a server of it that runs in a thread of the test's process."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import requests
import torch
import uvicorn
from transformers import AutoTokenizer

import xmtc
from xmtc.artefact.export import ModelParts, export_model
from xmtc.artefact.info import ModelInfo
from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import resolve_pretrained
from xmtc.desk.config import ServeConfig
from xmtc.desk.serve.app import make_app
from xmtc.desk.serve.models import Models
from xmtc.desk.serve.server import listen, settings_of
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.heads.config import LabelAttentionConfig

BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
LABELS = ["animal", "cod", "fish", "law", "law/tax", "steel"]
NAMES = ["Animals", "Cod", "Fish and other sea animals", "Law", "Tax law", "Steel"]
PARENTS = [(), ("fish",), ("animal",), (), ("law",), ("industry",)]
COUNTS = [90, 2, 40, 60, 7, 11]
TEXTS = [
    "Cod and other fish of the sea.",
    "A regulation on taxes.",
    "steel",
    "Fishing is taxed by law; so is steel.",
]


def export(directory: Path) -> Path:
    torch.manual_seed(0)
    config = ModelConfig(
        encoder=HuggingFaceConfig(from_config=BERT),
        head=LabelAttentionConfig(width=16, heads=2),
        overlap=6,
    )
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    )
    classifier = config.build(len(tokenizer), len(LABELS))
    table = LabelTable(LABELS, NAMES, np.array(COUNTS), PARENTS)
    info = ModelInfo(
        name="sea laws", model=config, vocab_size=len(tokenizer), max_length=60
    )
    parts = ModelParts(info, classifier, tokenizer, table)
    return export_model(directory, parts, dict(classifier.named_parameters()))


load = partial(xmtc.Model.from_pretrained, device="cpu")


class Client:
    """Sends requests to a server, without waiting for ever."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port, self.place = port, f"http://127.0.0.1:{port}"
        self.session = requests.Session()
        self.session.trust_env = False
        if token is not None:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.session.get(self.place + path, timeout=30, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.session.post(self.place + path, json=body, timeout=30, **options)


@contextmanager
def running(model: xmtc.Model | Path | str, **settings: Any) -> Iterator[Client]:
    config = ServeConfig(port=0, **settings)
    models = (
        Models.single(model, config)
        if isinstance(model, xmtc.Model)
        else Models(config, str(model), load)
    )
    server = uvicorn.Server(settings_of(make_app(models)))
    listener = listen(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    end = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.01)
    client = Client(listener.getsockname()[1], config.token)
    try:
        yield client
    finally:
        client.session.close()
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
