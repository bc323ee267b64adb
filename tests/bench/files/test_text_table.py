"""Tables as text: widths, sides, and cells that contain a pipe."""

from bench.files.text_table import aligned, markdown


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
