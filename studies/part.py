"""Generated parts of a document that show stored results."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedflat.analysis.comparison.report_pages import ReportFigure, markdown_figure
from fedflat.analysis.comparison.report_table import ReportTable
from fedflat.bench.input.content import short_hash
from studies.marked_text import has_part, rewrite_part
from studies.pictures import save_picture

PIXELS = 880
"""The width of a figure."""


@dataclass(frozen=True)
class PagePart:
    """A generated part of a document: sentences, figures, tables, and other blocks of Markdown."""

    sentences: Sequence[str]
    figures: Sequence[ReportFigure] = ()
    tables: Sequence[ReportTable] = ()
    blocks: Sequence[str] = ()

    def markdown(self, folder: str) -> str:
        """The text of the part; `folder`: where its pictures are, relative to the document."""
        lines = [f"- {sentence}" for sentence in self.sentences]
        for figure in self.figures:
            lines += ["", *markdown_figure(figure, folder)]
        for table in self.tables:
            lines += ["", table.markdown(level=3).rstrip()]
        for block in self.blocks:
            lines += ["", block.strip()]
        return "\n".join(lines).strip()


def shown(figure: ReportFigure) -> str:
    """A hash of what a figure shows, to three digits: other processors may differ in the last ones."""
    return short_hash(f"{figure.caption}\n{figure.frame.to_csv(index=False, float_format='%.3g')}")


@dataclass(frozen=True)
class GeneratedPages:
    """Documents with generated parts: each part is in the documents that have its marks; `pictures`: their folder."""

    documents: Sequence[Path]
    pictures: Path

    def with_part(self, name: str) -> Iterator[Path]:
        """The documents that have a part."""
        return (document for document in self.documents if has_part(document, name))

    def pictures_of(self, document: Path) -> str:
        """The folder of the pictures, relative to a document."""
        return Path(os.path.relpath(self.pictures, document.parent)).as_posix()

    def rewrite(self, parts: Mapping[str, PagePart]) -> None:
        """Rewrite parts, by name, and draw their figures."""
        for name, part in parts.items():
            for figure in part.figures:
                save_picture(figure.figure, self.pictures / f"{figure.name}.png", PIXELS, shown(figure))
            for document in self.with_part(name):
                rewrite_part(document, name, part.markdown(self.pictures_of(document)))
