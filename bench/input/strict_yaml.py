"""YAML without repeated keys in a mapping: PyYAML would silently drop the first value."""

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with a check for repeated keys, before merge keys (<<) extend a mapping."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The mapping; a `YAMLError` if a key is repeated in it."""
        node = super().compose_mapping_node(anchor)
        seen: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if (key.tag, key.value) in seen:
                first = seen[key.tag, key.value]
                where = f"lines {first} and {line}" if first != line else f"line {line}"
                raise yaml.YAMLError(f"the key '{key.value}' is repeated in one mapping ({where})")
            seen[key.tag, key.value] = line
        return node


def load_yaml(text: str) -> Any:
    """The content of the text; a `yaml.YAMLError` if it is not YAML, or repeats a key."""
    return yaml.load(text, Loader=_Loader)
