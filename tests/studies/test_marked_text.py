"""A generated part of a document is read and rewritten; the rest of the document stays."""

import pytest

from fedflat.bench.input.errors import UserError
from studies.marked_text import marks, part, rewrite_part

BEGIN, END = marks("hours")


def test_only_the_part_is_rewritten(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n", encoding="utf-8")
    assert part(document, "hours") == "old"
    rewrite_part(document, "hours", "12 hours")
    assert document.read_text(encoding="utf-8") == f"Before.\n{BEGIN}\n\n12 hours\n\n{END}\nAfter.\n"
    rewrite_part(document, "hours", part(document, "hours"))
    assert part(document, "hours") == "12 hours"


@pytest.mark.parametrize("text", ["no marks", BEGIN, f"{END} {BEGIN}", f"{BEGIN} {END} {BEGIN} {END}"])
def test_a_document_without_both_marks_once_is_refused(tmp_path, text):
    document = tmp_path / "page.md"
    document.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"page.md' has no place .*<!-- hours:begin --> and <!-- hours:end -->"):
        rewrite_part(document, "hours", "12 hours")
    assert document.read_text(encoding="utf-8") == text
