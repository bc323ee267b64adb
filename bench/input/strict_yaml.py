"""YAML without repeated keys in a mapping: PyYAML would silently drop the first value."""

from typing import Any

import yaml

# libyaml's parser is about eight times as fast; PyYAML lacks it only where it was built without libyaml.
_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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


def load_yaml(text: str) -> Any:
    """The content of the text; a `yaml.YAMLError` if it is not YAML, or repeats a key."""
    return yaml.load(text, Loader=_Loader)
