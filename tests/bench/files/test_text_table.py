"""Tables as text: widths, sides, and cells that contain a pipe."""

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fedflat.bench.files.text_table import aligned, markdown, without_html


def test_columns_are_as_wide_as_their_longest_cell() -> None:
    assert aligned([("method", "runs", "takes"), ("fedavg", "3", ""), ("fedlesam_s", "12", "rho")], right={1}) == [
        "method      runs  takes",
        "fedavg         3",
        "fedlesam_s    12  rho",
    ]


def test_markdown_escapes_pipes() -> None:
    assert markdown(["what", "count"], [["a|b", "1"]], right={1}) == [
        "| what | count |",
        "| --- | ---: |",
        r"| a\|b | 1 |",
    ]


MARKUP = st.lists(
    st.sampled_from([*"<>/!?-&;\"'`\\|[]()*_#= \n\r\v\u2028", "img", "script", "<a ", "<!--", "<![CDATA[", "&lt;", "x"])
).map("".join)


@settings(max_examples=500, deadline=None)
@given(MARKUP)
def test_no_text_becomes_html(text: str) -> None:
    """In a cell, in a paragraph, and as a heading."""
    page = [*markdown(["a"], [[text]]), "", without_html(text), "", f"# {without_html(text)}"]
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse("\n".join(page))
    parts = [part for token in tokens for part in (token, *(token.children or ()))]
    assert [part.content for part in parts if part.type.startswith("html")] == []
    assert sum(part.type == "td_open" for part in parts) == 1, "a cell stays one cell"


def test_a_sign_that_begins_no_tag_remains() -> None:
    assert without_html("< 0.01, a <- b, 1<2") == "< 0.01, a <- b, 1<2"
    assert without_html("<b>\n</b>") == "&lt;b> &lt;/b>"
