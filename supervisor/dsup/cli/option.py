"""How an option of ``dsup launch`` is written down."""

from __future__ import annotations

from typing import Any, NamedTuple

import click


class Section(NamedTuple):
    """Options that the help shows together.

    Attributes:
        title: what it says above them.
        options: in the order in which people look for them.
    """

    title: str
    options: tuple[click.Option, ...]


class _Option(click.Option):
    def get_help_extra(self, _: click.Context) -> click.types.OptionHelpExtra:
        """Return nothing: the help says it in words, or a range would be said too."""
        return {}


def option(names: str, env: str = "", /, **attributes: Any) -> click.Option:  # noqa: ANN401 (click's)
    """Return an option.

    Args:
        names: its spellings, and its name in the code if that is another.
        env: the variables that are read in its place, the first one first.
        **attributes: click's; ``shown`` is what the help calls the default, if that is
            not its value.
    """
    shown = attributes.pop("shown", attributes.get("default", ""))
    if shown != "":
        attributes["help"] += f"  [default: {shown}]"
    return _Option(names.split(), envvar=env.split() or None, **attributes)
