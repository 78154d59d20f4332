"""The count of the house: what is a line of code, and what is a key."""

import ast

import size
import unused_keys

MODULE = '''"""A module."""

from xmtc.config.base import config


@config
class LossConfig:
    """Settings."""

    kind: Literal["hinge"] = "hinge"
    """Which loss."""
    task: ClassVar[Task] = "multi_label"
    margin: float = 1.0  # a comment

    def build(self):
        # another
        return {
            "margin": self.margin,
        }
'''


def test_code_lines_are_neither_blank_nor_comment_nor_docstring():
    assert size.size_of(MODULE).lines == 10


def test_packed_statements_are_counted():
    assert size.size_of("a, b = f(), g()\nc = d = 1\n").packed == 1
    assert (
        size.size_of(
            "[[x for x in y] for y in z]\nif (n := f()) > 1:\n    pass\n"
        ).packed
        == 2
    )
    assert size.size_of("left, right = pair\n[x for x in y]\n").packed == 0


def test_keys_are_the_fields_of_settings_classes():
    (node,) = [
        node for node in ast.walk(ast.parse(MODULE)) if isinstance(node, ast.ClassDef)
    ]
    assert size.is_config(node)
    assert size.keys(node) == ["kind", "margin"]


def test_a_key_is_used_where_its_section_is_named():
    found = unused_keys.Found()
    found.add_tree(
        {
            "finetune": {
                "loss": {"kind": "hinge", "margin": 0.5},
                "phases": [{"epochs": 2}],
            }
        }
    )
    found.add_page("Set `plant.epochs` to 3.")
    found.add_module("IndexConfig(probes=3)\nload('track.directory=runs')")
    assert {
        ("loss", "margin"),
        ("phases", "epochs"),
        ("plant", "epochs"),
        ("track", "directory"),
    } <= found.below
    assert ("hinge", "margin") in found.of_kind
    assert ("IndexConfig", "probes") in found.of_class
