"""What a command says where something was typed that it does not take."""

from typing import Any

import typer
from typer.core import TyperCommand
from typing_extensions import override

_TEXT = "--text"
_OVERRIDES = "overrides"
"""Parameter of the arguments KEY=VALUE."""


class HintingCommand(TyperCommand):
    """A command that names the option which was meant, and whose help shows no type for options without a value."""

    allow_extra_args = True  # `parse_args` refuses them itself

    @override
    def get_params(self, ctx: typer.Context) -> list[Any]:
        """List all parameters; those of options that take no value have no type to show."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters

    @override
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Read what was typed; refuse arguments that are too many."""
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            ctx.fail(self._too_many(ctx.args))
        return rest

    @override
    def invoke(self, ctx: typer.Context) -> Any:
        """Run the command, unless a setting is one of its options."""
        for override_ in ctx.params.get(_OVERRIDES) or ():
            key, equals, value = override_.partition("=")
            option = f"--{key.strip().replace('_', '-')}"
            if equals and option in self._options():
                ctx.fail(f"{override_}: is an option; write {option} {value}".rstrip())
        return super().invoke(ctx)

    def _options(self) -> list[str]:
        """List the options by their long names."""
        return [name for parameter in self.params for name in parameter.opts]

    def _too_many(self, arguments: list[str]) -> str:
        """Refuse arguments; they are not shown, because they may be texts."""
        number = (
            "one argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
        )
        takes_text = any(
            _TEXT in parameter.opts and "-t" in parameter.opts
            for parameter in self.params
        )
        hint = f"; give a text with {_TEXT}" if takes_text else ""
        return f"{number} too many{hint}"
