"""YAML within bounds: what PyYAML answers with other exceptions, or with no answer at all, is refused in one error."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedflat.bench.input.strict_yaml import DEPTH, MOST_CHARACTERS, MOST_VALUES, load_yaml

LETTERS = "abcdefghi"


def bomb(first: str, level: str, between: str) -> str:
    """Nine lines, each of which contains the line before nine or ten times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{k}: &a{k} {level.replace('...', between.join([f'*a{k - 1}'] * 10))}" for k in range(1, 10)]
    return "\n".join(lines)


BOMBS = {
    "lists": bomb("[x, x]", "[...]", ", "),
    "merge keys": bomb("{a: x}", "{<<: [...]}", ", "),
    "mappings": "\n".join(
        [f"a0: &a0 {{{', '.join(f'{c}: x' for c in LETTERS)}}}"]
        + [f"a{k}: &a{k} {{{', '.join(f'{c}: *a{k - 1}' for c in LETTERS)}}}" for k in range(1, 10)]
    ),
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_nested_aliases_are_refused_before_they_are_expanded(text):
    with pytest.raises(yaml.YAMLError, match=f"more than {MOST_VALUES:,} values, counted with the content of aliases"):
        load_yaml(text)


@pytest.mark.parametrize("text", ["&a [*a]", "a: &a {b: *a}", "a: &a\n  - b: [*a]"])
def test_an_alias_of_itself(text):
    with pytest.raises(yaml.YAMLError, match=r"the alias [*]a in line . is part of what it stands for"):
        load_yaml(text)


@pytest.mark.parametrize(
    "text",
    [
        "!!int abc",
        "!!float abc",
        "!!bool abc",
        "0x_",
        "9" * 5000,
        str(2**63),
        "!!set {a}",
        "!!omap [a: 1]",
        "\0",
        "\ud800",
    ],
)
def test_values_that_are_none(text):
    with pytest.raises(yaml.YAMLError):
        load_yaml(f"rounds: {text}")


@pytest.mark.parametrize("text", ["9" * 5000, str(2**63), "abc"])
def test_a_whole_number_that_is_none_or_too_large(text):
    with pytest.raises(yaml.YAMLError, match=r"^'.*' in line 1 is not a whole number of at most 64 bits$"):
        load_yaml(f"rounds: !!int {text}")


def test_sizes():
    assert load_yaml("[" * DEPTH + "]" * DEPTH)
    with pytest.raises(yaml.YAMLError, match=f"more than {DEPTH} lists and mappings within each other"):
        load_yaml("[" * (DEPTH + 1) + "]" * (DEPTH + 1))
    with pytest.raises(yaml.YAMLError, match="characters"):
        load_yaml("x" * (MOST_CHARACTERS + 1))
    assert load_yaml(str(2**63 - 1)) == 2**63 - 1


def test_dates_are_text():
    assert load_yaml("[2021-01-01, 2021-99-99]") == ["2021-01-01", "2021-99-99"]


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text("abc é\n:")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abc"), inner, max_size=3)),
)


@given(plain)
def test_plain_values_are_read_as_they_were_written(value):
    assert load_yaml(yaml.safe_dump(value, allow_unicode=True)) == value


def test_aliases_and_merge_keys_within_the_bounds():
    assert load_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]") == {
        "a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}],
    }  # fmt: skip
