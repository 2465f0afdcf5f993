"""The directive ``commands``: every command of a click group with its help, so that what the page
says is what the command says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

WIDTH = 88


def walk(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, str]]:
    """The full name of a command and of all below it, and what ``--help`` prints."""
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context.command_path, command, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None and not found.hidden:
                yield from walk(found, below, context)


class Commands(Directive):
    """``commands:: module:group name``"""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        module, attribute = self.arguments[0].split(":")
        sections: list[nodes.Node] = []
        group = getattr(import_module(module), attribute)
        for path, command, told in walk(group, self.arguments[1]):
            section = nodes.section(ids=[nodes.make_id(path)], classes=["help"])
            section += nodes.title("", "", nodes.literal(text=path))
            about = command.get_short_help_str(limit=200)
            section += nodes.paragraph(text=about if about.endswith(".") else about + ".")
            section += nodes.literal_block(told, told, language="text")
            self.state.document.note_explicit_target(section, section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
