"""YAML within bounds, without repeated keys in a mapping, of which PyYAML would silently drop the first value, and
without the numbers of YAML 1.1 that look like other ones, such as 010 for 8, and 1:30 for 90."""

import re
from collections.abc import Callable
from typing import Any

import yaml

MOST_CHARACTERS = 4 << 20
"""Largest YAML text. The largest file of a paper's experiments has less than 50,000 characters."""

MOST_VALUES = 200_000
"""Largest number of values, with the content of an alias counted wherever the alias stands. Programs copy and print the
content, so nested aliases of a few lines could otherwise fill any memory."""

DEPTH = 50
"""Largest depth of lists and mappings within each other. Programs go through them by recursion, which Python limits."""

LARGEST = 2**63 - 1
"""Largest whole number, which is that of torch, NumPy and the tables of results."""

# libyaml's parser is about eight times as fast; PyYAML lacks it only where it was built without libyaml.
_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_PLAIN = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)|[^:_]*[.][^:_]*")
"""Whole numbers, and numbers with a decimal point, that YAML 1.1 reads as everybody does."""


class OddNumberError(yaml.YAMLError):
    """A number that YAML 1.1 reads as another one than its digits say."""


class _Loader(_SafeLoader):  # type: ignore[valid-type, misc]
    """PyYAML's safe loader with a check for repeated keys, before merge keys (<<) extend a mapping."""

    def get_single_node(self) -> yaml.Node | None:
        """The document's root; a `YAMLError` if a key is repeated in one of its mappings."""
        root: yaml.Node | None = super().get_single_node()
        nodes, visited = [root], set()
        while nodes:
            node = nodes.pop()
            if isinstance(node, yaml.CollectionNode) and id(node) not in visited:
                visited.add(id(node))
                if isinstance(node, yaml.MappingNode):
                    _check_keys(node)
                    nodes += [value for pair in node.value for value in pair]
                else:
                    nodes += node.value
        return root


def _check_keys(mapping: yaml.MappingNode) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if (first := lines.get((key.tag, key.value))) is not None:
            where = f"lines {first} and {line}" if first != line else f"line {line}"
            raise yaml.YAMLError(f"the key '{key.value}' is repeated in one mapping ({where})")
        lines[key.tag, key.value] = line


def _readable(construct: Callable[[Any, yaml.ScalarNode], Any], kind: str) -> Callable[[Any, yaml.ScalarNode], Any]:
    """The constructor of PyYAML, with a `YAMLError` for a text that it cannot read, such as `!!int abc`."""

    def constructed(loader: Any, node: yaml.ScalarNode) -> Any:
        try:
            value = construct(loader, node)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            value = None
        if value is None or (isinstance(value, int) and abs(value) > LARGEST):
            raise yaml.YAMLError(f"'{node.value}' in line {node.start_mark.line + 1} is not a {kind}")
        if not isinstance(value, bool) and not _PLAIN.fullmatch(node.value):
            raise OddNumberError(
                f"'{node.value}' in line {node.start_mark.line + 1} is {value} in YAML (allowed: digits without '_', "
                "':', '0b' or a leading 0; a text in quotes)"
            )
        return value

    return constructed


_TAG = "tag:yaml.org,2002:"
_KINDS = {"int": "whole number of at most 64 bits", "float": "number", "bool": "truth value"}
for _name, _kind in _KINDS.items():
    _Loader.add_constructor(_TAG + _name, _readable(getattr(yaml.SafeLoader, f"construct_yaml_{_name}"), _kind))
_Loader.add_constructor(_TAG + "timestamp", yaml.SafeLoader.construct_yaml_str)  # no key has dates: they are text
for _name in ("binary", "omap", "pairs", "set"):  # no key has such values
    _Loader.add_constructor(_TAG + _name, yaml.SafeLoader.construct_undefined)


def load_yaml(text: str) -> Any:
    """The content of the text; a `yaml.YAMLError` if it is not YAML, repeats a key, or is beyond the bounds."""
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"it has {len(text):,} characters (allowed: {MOST_CHARACTERS:,})")
    try:
        text.encode()
    except UnicodeEncodeError:  # an argument of a command is any bytes
        raise yaml.YAMLError("it is not UTF-8") from None
    _check_size(text)
    return yaml.load(text, Loader=_Loader)


def _check_size(text: str) -> None:
    """A `YAMLError` if the text has too many values or levels, or an alias of itself; aliases are not expanded."""
    values = 0
    opened: list[tuple[str | None, int]] = []  # anchors of the current lists and mappings, and the values before them
    sizes: dict[str | None, int] = {}
    for event in yaml.parse(text, Loader=_SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in opened):
                raise yaml.YAMLError(f"the alias *{event.anchor} in line {line} is part of what it stands for")
            values += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
            values += 1
            if len(opened) > DEPTH:
                raise yaml.YAMLError(f"more than {DEPTH} lists and mappings within each other in line {line}")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = values - before
        if values > MOST_VALUES:
            raise yaml.YAMLError(f"more than {MOST_VALUES:,} values, counted with the content of aliases")
