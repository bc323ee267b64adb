"""What an HTML page consists of."""

from html.parser import HTMLParser


class Parsed(HTMLParser):
    """The elements of a page with their attributes, its scripts, and the text that it shows."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and self.scripts and not self.scripts[-1]:
            self.scripts[-1] = data
        elif self.elements and self.elements[-1][0] not in ("script", "style"):
            self.text += data
