"""`xmtc decide`, `xmtc push` and `xmtc model`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.family import Command, command
from xmtc.commands.options import ModelDir


@command(panel="Change")
def decide(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model directory, which changes.")
    ],
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            help="micro, macro, samples, precision=0.9, budget=5 (per document) or top_k=5.",
        ),
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
    repository: Annotated[
        str,
        typer.Argument(
            metavar="OWNER/NAME", help="Repository; created if it does not exist."
        ),
    ],
    public: Annotated[
        bool, typer.Option("--public", help="Let everyone read a new repository.")
    ] = False,
) -> None:
    """Upload a model to the Hugging Face Hub. Every command then accepts `owner/name` as MODEL."""
    from xmtc.artefact.hub import push as push_model

    print(push_model(model, repository, public=public))


model_app = typer.Typer(
    no_args_is_help=True,
    help="Change the weights of an exported model, without training.",
)
model = Command("model", "Change", model_app)


@model_app.command("merge")
def model_merge(
    model: ModelDir,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Directory or URI of the new model; replaces a model there.",
        ),
    ],
) -> None:
    """Fold a model's LoRA adapters into its backbone, for programs that know no adapters."""
    from xmtc.artefact.merge import merge_adapters
    from xmtc.predict.smoke import write_answers
    from xmtc.run.copies import published_model

    with published_model(output) as folder:
        change = merge_adapters(model, folder, write_answers)
    print(
        f"{output}: adapters folded into encoder/; hidden states changed by at most {change:.1e} of the largest"
    )
