"""The site that `make docs` builds from README.md, docs/ and paper_tables/; broken links are errors."""

from sphinx.application import Sphinx

project = "FedFlat"
root_doc = "README"
extensions = ["myst_parser"]
include_patterns = ["README.md", "docs/**.md", "paper_tables/**.md"]
exclude_patterns = [".*", "build", "results", "tests"]
html_theme = "furo"
html_title = "FedFlat"
html_static_path: list[str] = []
myst_heading_anchors = 3

CONTENTS = """
```{toctree}
:hidden:
:caption: Experiments

docs/experiments/keys
docs/experiments/data_sets
docs/experiments/partitions
docs/experiments/models
docs/experiments/augmentation
docs/experiments/methods
docs/experiments/precedence
```

```{toctree}
:hidden:
:caption: Use

docs/running
docs/clusters
docs/results
docs/verification
docs/python
docs/adding_a_method
docs/analyses
docs/performance
docs/licences
```

```{toctree}
:hidden:
:caption: Papers

docs/papers
docs/published
docs/claims
paper_tables/README
paper_tables/audit
```

```{toctree}
:hidden:
:glob:
:caption: Folders of paper_tables

paper_tables/*/README
```
"""


def setup(app: Sphinx) -> None:
    """The contents of the sidebar are not part of the README, which is shown elsewhere, too."""

    def add_contents(_app: Sphinx, page: str, text: list[str]) -> None:
        if page == root_doc:
            text[0] += CONTENTS

    app.connect("source-read", add_contents)
