"""`xmtc decide` and `xmtc push`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.family import command
from xmtc.commands.options import ModelDir


@command(panel="Change")
def decide(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model directory, which changes.")],
    rule: Annotated[
        str, typer.Option("--rule", help="micro, macro, samples, precision=0.9, budget=5 (per document) or top_k=5.")
    ],
) -> None:
    """Choose another rule for which labels a finished model predicts, tuned on dev, without training."""
    from xmtc.artefact.decide import decide as decide_by
    from xmtc.predict.arguments import as_rule

    decide_by(model, as_rule(rule))
    print(f"{model / 'thresholds.json'}: decides by {rule}")
    if (model.parent / "eval").is_dir():
        print(f"its report shows the former rule until 'xmtc evaluate {model.parent}'")


@command(panel="Use")
def push(
    model: ModelDir,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository; created if it does not exist.")],
    public: Annotated[bool, typer.Option("--public", help="Let everyone read a new repository.")] = False,
) -> None:
    """Upload a model to the Hugging Face Hub. Every command then accepts `owner/name` as MODEL."""
    from xmtc.artefact.hub import push as push_model

    print(push_model(model, repository, public=public))
