"""The licences and hashes are those of the pinned packages; the page is true; what pip-audit answers is shown."""

import json
import re
from importlib.metadata import distribution

from studies.audit import hashes
from studies.audit.licences import BY_FILE, HEAD, PAGE, page
from studies.audit.pins import normalised, pins
from studies.audit.vulnerabilities import FOUND, NOT_CHECKED, answer

MADE_AGAIN = "the page is not that of constraints.txt; write it again with: make audit"


def rows() -> dict[str, tuple[str, str]]:
    """Version and licence of each package, as the page lists them."""
    cells = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (version, licence) for name, version, licence in cells[2:]}


def test_the_page_lists_the_pinned_versions_with_a_licence():
    listed = rows()
    assert {name: version for name, (version, _) in listed.items()} == pins(), MADE_AGAIN
    assert all(licence.strip() and "UNKNOWN" not in licence for _, licence in listed.values())
    assert PAGE.read_text(encoding="utf-8").startswith(HEAD), MADE_AGAIN


def test_a_package_with_copyleft_is_named_above_the_table():
    found = {name for name, (_, licence) in rows().items() if re.search(r"GPL|General Public|MPL|Mozilla", licence)}
    assert {"docutils", "certifi", "hypothesis", "pathspec", "tqdm"} <= found
    for name, (_, licence) in rows().items():
        if re.search("GPL|General Public", licence):
            assert f"**{name}**" in HEAD
        assert not re.search(r"AGPL|Affero|proprietary", licence, re.IGNORECASE)


def test_what_the_page_says_of_pyhessian_is_true():
    package = distribution("pyhessian")
    assert package.metadata["License"] == "MIT"
    assert rows()["PyHessian"] == ("0.1", "MIT")
    files = {str(file): file.read_text(encoding="utf-8") for file in package.files or () if file.suffix in ("", ".py")}
    [licence] = [text for name, text in files.items() if name.endswith("LICENSE")]
    assert licence.startswith("MIT License\n")
    modules = [text for name, text in files.items() if name.endswith(".py")]
    assert len(modules) == 3
    for text in modules:
        head = " ".join(text[:900].replace("#", " ").split())
        assert "GNU General Public License as published by the Free Software Foundation, either version 3" in head


def test_packages_without_a_licence_in_their_metadata_contain_one():
    for name, licence in BY_FILE.items():
        files = [file for file in distribution(name).files or () if file.name == "LICENSE"]
        assert any(file.read_text(encoding="utf-8").startswith(f"{licence} License") for file in files), name


def test_no_emacs_mode_is_installed():
    assert not [file for file in distribution("docutils").files or () if file.suffix == ".el"]


def test_the_first_known_source_of_a_licence_counts():
    names = {normalised(name): name for name in pins()}
    unknown = {"License-Expression": "UNKNOWN", "License-Classifier": "UNKNOWN", "License-Metadata": "UNKNOWN"}
    found = [{"Name": name, **unknown, "License-Metadata": "long\ntext"} for name in names]
    found[0] |= {"License-Classifier": "BSD License"}
    found[1] |= {"License-Classifier": "BSD License", "License-Expression": "MIT"}
    shown = page({**one, **unknown} if one["Name"] in BY_FILE else one for one in found)
    first, second, third = [re.escape(names[name]) for name in list(names)[:3]]
    assert re.search(rf"^\| {first} \| \S+ \| BSD License \|$", shown, re.MULTILINE)
    assert re.search(rf"^\| {second} \| \S+ \| MIT \|$", shown, re.MULTILINE)
    assert re.search(rf"^\| {third} \| \S+ \| long \|$", shown, re.MULTILINE)
    assert re.search(r"^\| conda-inject \| \S+ \| MIT \(\*file\*\) \|$", shown, re.MULTILINE)


def printed(*packages: dict) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_answers_of_pip_audit():
    """Its JSON, errors and tracebacks, as version 2.10 prints them."""
    clean = {"name": "numpy", "version": "2.4.6", "vulns": []}
    found = {"id": "PYSEC-2099-1", "aliases": ["CVE-2099-1"], "fix_versions": ["2.4.7"], "description": "…"}
    skipped = {"name": "torch", "skip_reason": "not on PyPI"}
    assert answer(printed(clean), "") == (0, ["vulnerabilities: 0 known; 1 of 1 packages checked"])
    code, [line] = answer(printed(clean, skipped), "")
    assert code == NOT_CHECKED, "a mirror that knows no vulnerabilities is no answer"
    assert line.startswith("vulnerabilities: 0 known; 1 of 2 packages checked; the service at PyPI cannot be reached")
    assert line.endswith("or does not know: torch")
    code, [line, _] = answer(printed(clean | {"vulns": [found]}, skipped), "")
    assert (code, line) == (FOUND, "numpy 2.4.6: PYSEC-2099-1, CVE-2099-1; fixed in: 2.4.7")
    for stderr, reason in (
        (
            "WARNING:x\nERROR:pip_audit._cli:Could not connect to its feed\nERROR:tip\n",
            "ERROR:pip_audit._cli:Could not",
        ),
        ("Traceback\n  File x\nConnectionError: Max retries exceeded\n", "ConnectionError: Max retries exceeded"),
        ("", "no reason given"),
    ):
        code, [line] = answer("", stderr)
        assert code == NOT_CHECKED
        assert line.startswith(f"vulnerabilities are not checked: pip-audit fails ({reason}")


def test_the_hashes_are_those_of_the_pinned_versions():
    assert hashes.hashed() == hashes.wanted(), (
        "hashes.txt is not that of constraints.txt; write it again with: make audit"
    )
    assert {*pins()} - {name for name in pins() if normalised(name) in hashes.wanted()} == {"torch", "torchvision"}
    text = hashes.FILE.read_text(encoding="utf-8")
    assert text.startswith(hashes.HEAD)
    lines = text.removeprefix(hashes.HEAD).splitlines()
    packages, files = ([line for line in lines if line.startswith(" ") == inner] for inner in (False, True))
    assert len(packages) == len(hashes.wanted())
    assert len(files) > len(packages), "several files of most packages"
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in files), "and no address"
