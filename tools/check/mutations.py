"""Change a model as a stranger could, with checksums that fit, and count what loading and predicting make of it.

    python tools/check/mutations.py [--cases N] [--seed S] [--record FILE] [--only TEXT]

Checksums are made by whoever made the model, so they show nothing about what it holds. Tiny models of four kinds are
trained first: a flat head with an index, label attention fused with every kind of scorer, a single-label model, and a
Transformer with an adapter. Each case changes one file of one of them (a byte, a number of an array or of JSON, a size,
a type, a name), corrects its checksum, and loads the model and predicts with it in a fork of this process. A case ends
in one of these ways:

    answered    an XmtcError: one line that names the file
    accepted    predictions, all of them probabilities
    wrong       predictions that are not probabilities
    traceback   another exception
    hung        no answer within 40 seconds
    crashed     the process was lost, by a signal for example

The exit status is 1 if a case ends in one of the last four ways.
"""

import argparse
import contextlib
import gc
import hashlib
import io
import json
import logging
import random
import shutil
import struct
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import yaml

from bad_input_cases.case import command, import_all, in_child
from xmtc.artefact.info import read_description
from xmtc.errors import XmtcError

GOOD = ("answered", "accepted")
LIMIT_S = 40
TEXTS = ["lawery and fishing of steel 3", "hearting, schoolery 2"]
WORDS = ["law", "fish", "heart", "trade", "school", "steel"]
FUSED = (
    "linear",
    "ranked_words",
    "word_neighbours",
    "label_text",
    "state_neighbours",
    "label_embeddings",
    "tree",
)
NUMBERS = (-1, 0, 1, 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 10**6)
FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 1e30, 0.0)
OTHER_TYPES = {"F64": "I64", "I64": "F64", "F32": "I32", "I32": "F32", "F16": "BF16"}
VALUES = (
    None,
    True,
    -1,
    0,
    10**9,
    2**70,
    1.5,
    "",
    "x",
    [],
    {},
    [None],
    {"a": 1},
    "../../x",
)
"""What a value of JSON becomes."""
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
TINY = {"kind": "multilevel", "embedding": {"width": 16}, "width": 16, "window": 24}
ATTENTION = {"kind": "label_attention", "width": 16, "heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "flat": {"encoder": TINY, "head": {"kind": "flat", "pooling": {"kind": "mean"}}},
    "fused": {
        "encoder": TINY,
        "head": ATTENTION,
        "scorers": [{"kind": kind} for kind in FUSED],
    },
    "single": {
        "encoder": TINY,
        "head": {"kind": "flat", "pooling": {"kind": "mean"}},
        "scorers": [{"kind": "linear"}],
    },
    "adapter": {
        "encoder": {"kind": "hugging_face", "lora": {"r": 2}},
        "head": ATTENTION,
    },
}


def trained(folder: Path) -> dict[str, Path]:
    """Train the models; their folders by kind."""
    models = {}
    for name in MODELS:
        if name == "adapter":
            save_backbone(folder, folder / "corpus-flat" / "tokenizer")
        models[name] = train_model(folder, name) / "model"
    return models


def save_backbone(folder: Path, tokenizer: Path) -> None:
    """Write a Transformer with random weights into `backbone`, so that a case need not read a real one's."""
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = PreTrainedTokenizerFast.from_pretrained(tokenizer)
    words.save_pretrained(folder / "backbone")
    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=len(words), **BERT))
    model.save_pretrained(folder / "backbone")


def train_model(folder: Path, name: str) -> Path:
    """Train one of the models in a folder, and return its run; that with an adapter needs `save_backbone` first."""
    one_label = name == "single"
    rows = [
        {
            "text": f"{word}ery of {word}ing {i} {other}ery",
            "labels": [word] if one_label else sorted({word, other}),
        }
        for i in range(12)
        for word, other in zip(WORDS, WORDS[i % 6 :] + WORDS[: i % 6], strict=True)
    ]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = MODELS[name]
    if name == "adapter":
        model = model | {"encoder": model["encoder"] | {"name": f"{folder}/backbone"}}
    config = {
        "name": name,
        "data": {
            "source": {"kind": "jsonl", "files": {"train": str(path)}},
            "corpus": str(folder / f"corpus-{name}"),
            "max_length": 32,
            "task": "single_label" if one_label else "multi_label",
        },
        "model": model | {"overlap": 4},
        "plant": {"parts": []},
        "finetune": {
            "batch_size": 16,
            "phases": [{"epochs": 1}],
            "loss": {"kind": "cross_entropy" if one_label else "binary_cross_entropy"},
        },
        "evaluate": {"resamples": 0},
        "distributed": {"workers": 0, "threads": 1},
        "track": {"directory": str(folder / "runs")},
    }
    if name != "adapter":
        config["data"]["tokenizer"] = {"kind": "trained", "vocab_size": 200}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    code, said = command("train", folder / f"{name}.yaml")
    if code:
        sys.exit(f"the model {name} cannot be trained: {said}")
    return folder / "runs" / name


def prepared(folder: Path) -> dict[str, Path]:
    """Train in a fork, then import and build here what every case needs: threads do not survive a fork."""

    def work() -> tuple[dict[str, Path], list[str]]:
        models = trained(folder)
        for model in models.values():
            attempt(model)
        return models, sorted(sys.modules)

    found, status = in_child(work, limit_s=900)
    if found is None:
        sys.exit(f"training failed: exit status {status}")
    models, modules = found
    import_all(modules)
    for model in models.values():
        keep_tables(model)
    gc.freeze()
    return models


def keep_tables(model: Path) -> None:
    """Build a model here, in one thread, so that libraries make the tables that they keep, and forks need not."""
    torch.set_num_threads(1)
    info = read_description(model)
    info.model.build(info.vocab_size, len(WORDS))


def attempt(model: Path) -> tuple[str, str]:
    """Load a model and predict with it; how that ends, and what was said."""
    from xmtc.predict.predictor import Model

    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            loaded = Model.from_pretrained(model, device="cpu")
            texts = loaded.predict(TEXTS, top_k=5)
            loaded.predict(
                TEXTS, threshold="tuned", evidence=loaded.info.model.head.scores
            )
            if loaded.info.task == "multi_label":
                loaded.predict(TEXTS, threshold="macro")
    except XmtcError as error:
        return ("answered" if "\n" not in str(error) else "traceback"), str(error)
    except BaseException:
        return "traceback", traceback.format_exc()
    scores = [one.score for labels in texts for one in labels]
    return ("accepted" if all(0 <= score <= 1 for score in scores) else "wrong"), str(
        scores
    )


def mutate(folder: Path, rng: random.Random) -> str:
    """Change one file of a model and correct its checksum; say what was changed."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "README.md"
    ]
    path = rng.choice(files)
    how = None
    if path.suffix == ".safetensors" and rng.random() < 0.8:
        how = change_tensors(path, rng)
    elif path.suffix == ".json" and rng.random() < 0.8:
        how = change_json(path, rng)
    if how is None:
        how = change_bytes(path, rng)
    settings = folder / "config.json"
    if path != settings:
        content = json.loads(settings.read_text())
        name = path.relative_to(folder).as_posix()
        if name in content["sha256"]:
            content["sha256"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
            settings.write_text(json.dumps(content))
    return f"{path.relative_to(folder)}: {how}"


def change_bytes(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    if not content:
        return "empty"
    kind = rng.choice(["flip", "flip", "number", "cut", "twice", "noise"])
    at = (
        rng.randrange(len(content))
        if rng.random() < 0.5
        else rng.randrange(min(len(content), 400))
    )
    if kind == "flip":
        content[at] ^= 1 << rng.randrange(8)
    elif kind == "number":
        content[at : at + 4] = struct.pack("<i", rng.choice(NUMBERS) % 2**31)
    elif kind == "cut":
        del content[at:]
    elif kind == "twice":
        content += content[at:]
    else:
        content[at : at + 16] = rng.randbytes(16)
    path.write_bytes(content)
    return f"{kind} at byte {at}"


def change_tensors(path: Path, rng: random.Random) -> str:
    """Change the values of an array, or what the header says of it."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    body = bytearray(content[8 + size :])
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    entry = header[name]
    start, end = entry["data_offsets"]
    kind = rng.choice(
        ["value", "value", "value", "several", "type", "shape", "name", "drop", "swap"]
    )
    if kind in ("value", "several") and end > start:
        width = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}.get(
            entry["dtype"], 1
        )
        for _ in range(1 if kind == "value" else 20):
            at = start + width * rng.randrange((end - start) // width)
            body[at : at + width] = new_value(entry["dtype"], width, rng)
    elif kind == "type":
        entry["dtype"] = OTHER_TYPES.get(entry["dtype"], "I8")
    elif kind == "shape":
        count = 1
        for number in entry["shape"]:
            count *= number
        entry["shape"] = rng.choice(
            [[count], [1, count], [count, 1], entry["shape"][::-1]]
        )
    elif kind == "name":
        header[rng.choice(["x", f"{name}.x", name.partition(".")[0]])] = header.pop(
            name
        )
    elif kind == "drop":
        others = {other: header[other] for other in names if other != name}
        bodies = {
            other: bytes(body[slice(*one["data_offsets"])])
            for other, one in others.items()
        }
        header, body = {}, bytearray()
        for other, part in bodies.items():
            header[other] = others[other] | {
                "data_offsets": [len(body), len(body) + len(part)]
            }
            body += part
    elif kind == "swap":
        other = rng.choice(names)
        header[name], header[other] = header[other], header[name]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(body))
    return f"{kind} of {name}"


def new_value(dtype: str, width: int, rng: random.Random) -> bytes:
    if dtype in ("F32", "F64"):
        return struct.pack("<f" if width == 4 else "<d", rng.choice(FLOATS))
    if dtype in ("I32", "I64"):
        limit = 2 ** (8 * width - 1)
        return max(-limit, min(limit - 1, rng.choice(NUMBERS))).to_bytes(
            width, "little", signed=True
        )
    return rng.randbytes(width)


def change_json(path: Path, rng: random.Random) -> str | None:
    """Change one value, at any depth, or leave it out."""
    content = json.loads(path.read_text())
    places: list[tuple[Any, Any, str]] = []

    def walk(node: Any, name: str) -> None:
        items = (
            node.items()
            if isinstance(node, dict)
            else enumerate(node)
            if isinstance(node, list)
            else ()
        )
        for key, value in list(items)[:200]:
            places.append((node, key, f"{name}.{key}"))
            walk(value, f"{name}.{key}")

    walk(content, "")
    if not places:
        return None
    node, key, name = rng.choice(places)
    if rng.random() < 0.15:
        del node[key]
        how = "left out"
    else:
        node[key] = rng.choice(VALUES)
        how = repr(node[key])
    path.write_text(json.dumps(content))
    return f"{name[:80]} = {how}"


def end_of(number: int, kind: str, changed: Path, what: str) -> str:
    """How a case ends; say it if it ends badly."""
    found, status = in_child(attempt, changed, limit_s=LIMIT_S)
    outcome, said = found or (
        "hung" if status == -9 else "crashed",
        f"exit status {status}",
    )
    if outcome not in GOOD:
        print(
            f"{number} {outcome}: {kind}: {what}\n    {said.strip()[-900:]}", flush=True
        )
    return outcome


def read_record(path: Path | None, seed: int) -> dict[int, str]:
    """How the cases of an interrupted tool ended."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["case"]: line["outcome"] for line in lines if line["seed"] == seed}


def main() -> int:
    """Run the cases and print how they ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", default="", help="only cases whose change has this text in it"
    )
    parser.add_argument(
        "--record",
        type=Path,
        help="JSON lines of the cases that ran; an interrupted tool continues",
    )
    given = parser.parse_args()
    known = read_record(given.record, given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = prepared(folder)
        for number in range(given.cases):
            if number in known:
                continue
            rng = random.Random(given.seed * 1_000_003 + number)
            kind = rng.choice(sorted(models))
            changed = folder / "case" / f"{number}"
            shutil.copytree(models[kind], changed)
            what = mutate(changed, rng)
            if given.only in f"{kind}: {what}":
                known[number] = end_of(number, kind, changed, what)
                if given.record is not None:
                    case = {
                        "seed": given.seed,
                        "case": number,
                        "kind": kind,
                        "what": what,
                    }
                    with given.record.open("a") as record:
                        record.write(
                            json.dumps(case | {"outcome": known[number]}) + "\n"
                        )
            shutil.rmtree(changed)
    ends = Counter(end for number, end in known.items() if number < given.cases)
    print(", ".join(f"{end} {count:,}" for end, count in ends.most_common()))
    return int(any(end not in GOOD for end in ends))


if __name__ == "__main__":
    sys.exit(main())
