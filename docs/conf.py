"""The site that `make docs` builds from README.md, docs, paper_tables and studies; broken links are errors."""

import json
from typing import Any

from sphinx.application import Sphinx

project = "FedFlat"
root_doc = "README"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/**.md", "docs/**.ipynb", "paper_tables/**.md", "studies/**.md"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}  # notebooks are converted, see below
exclude_patterns = [".*", "build", "results", "tests"]
html_theme = "furo"
html_title = "FedFlat"
html_static_path: list[str] = []
myst_heading_anchors = 3

CONTENTS = """
```{toctree}
:hidden:

docs/index
```

```{toctree}
:hidden:
:caption: Learn

docs/one_round
docs/adding_a_method
docs/tour
```

```{toctree}
:hidden:
:caption: Do

docs/installation
docs/running
docs/python
docs/comparison
docs/tuning
docs/papers
docs/explorer
docs/verification
docs/clusters
```

```{toctree}
:hidden:
:caption: Look up

docs/experiments/keys
docs/experiments/precedence
docs/experiments/data_sets
docs/experiments/segmentation
docs/experiments/partitions
docs/experiments/models
docs/experiments/augmentation
docs/experiments/methods
docs/experiments/schedules
docs/experiments/work
docs/analyses
docs/layouts
docs/results
docs/glossary
```

```{toctree}
:hidden:
:caption: Understand

docs/flat1d
docs/bench1d
docs/study
docs/compositions
docs/reproduction
docs/published
docs/claims
docs/performance
docs/architecture
CONTRIBUTING
CHANGELOG
```

```{toctree}
:hidden:
:glob:
:caption: Papers and benchmarks

paper_tables/README
paper_tables/audit
paper_tables/*/README
```

```{toctree}
:hidden:
:glob:
:caption: Measurements in full

studies/pages/*
```
"""


def as_markdown(notebook: dict[str, Any]) -> str:
    """A notebook's text, code, and stored outputs: text and pictures."""
    blocks: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        blocks.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                blocks.append(f"![Figure](data:image/png;base64,{''.join(data['image/png']).strip()})")
            else:
                text = "".join(output.get("text") or data["text/plain"]).rstrip()
                blocks.append(f"```text\n{text}\n```")
    return "\n\n".join(blocks) + "\n"


def setup(app: Sphinx) -> None:
    """Notebooks are pages, and the README gets the contents of the sidebar, which others than the site do not show."""

    def read(_app: Sphinx, page: str, text: list[str]) -> None:
        if page == root_doc:
            text[0] += CONTENTS
        elif app.env.doc2path(page).suffix == ".ipynb":
            text[0] = as_markdown(json.loads(text[0]))

    app.connect("source-read", read)
