"""Archives: equal files give equal bytes, and a foreign archive writes nothing outside of its folder."""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedflat.analysis.provenance.archive import unpack, write_archive
from fedflat.bench.experiments.results import CHECKSUMS
from fedflat.bench.input.errors import UserError
from tests.places import ROOT

LETTER = "é" if sys.getfilesystemencoding() == "utf-8" else "e"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Files by their names in an archive."""
    contents = {
        "results/b.csv": b"x,y\n1,2\n",
        f"results/a/{LETTER}.bin": bytes(range(256)) * 99,
        "README.md": b"",
        "z": b"z",
    }
    written = {}
    for number, (name, content) in enumerate(contents.items()):
        written[name] = tmp_path / f"source-{number}"
        written[name].write_bytes(content)
    return written


def test_what_is_packed_is_unpacked(files, tmp_path):
    write_archive(tmp_path / "a.zip", files)
    assert unpack(tmp_path / "a.zip", tmp_path / "new/out") == 5
    out = tmp_path / "new/out"
    found = {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}
    checksums = found.pop(CHECKSUMS).decode()
    assert found == {name: file.read_bytes() for name, file in files.items()}
    assert checksums.splitlines() == [f"{hashlib.sha256(found[name]).hexdigest()}  {name}" for name in sorted(found)]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_a_name_that_the_locale_does_not_have_is_one_line(files, tmp_path):
    write_archive(tmp_path / "a.zip", {"é": files["z"]})
    code = (
        "from pathlib import Path\nfrom fedflat.analysis.provenance.archive import unpack\n"
        "unpack(Path('a.zip'), Path('out'))"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=plain, capture_output=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        b"fedflat.bench.input.errors.UserError: cannot unpack 'a.zip': the locale's encoding ascii lacks the character "
        b"'\\xe9' of a file's name (allowed: a UTF-8 locale, such as LC_ALL=C.UTF-8)"
    )
    assert [file.name for file in tmp_path.glob("*out*")] == []


def test_equal_files_give_equal_bytes(files, tmp_path, monkeypatch):
    write_archive(tmp_path / "a.zip", files)
    for number, file in enumerate(files.values()):
        os.utime(file, (1e9 + number, 1e9))
        file.chmod(0o600)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    write_archive(tmp_path / "b.zip", dict(reversed(files.items())))
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    files["z"].write_bytes(b"y")
    write_archive(tmp_path / "b.zip", files)
    assert (tmp_path / "a.zip").read_bytes() != (tmp_path / "b.zip").read_bytes()


def foreign(archive: Path, members: dict[str, bytes], kind: int = stat.S_IFREG, checksums: str | None = None) -> Path:
    """An archive that somebody else has made, with right checksums unless others are given."""
    if checksums is None:
        lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in members.items()]
        checksums = "".join(lines)
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (kind | 0o777) << 16
            zipped.writestr(entry, content)
        zipped.writestr(CHECKSUMS, checksums)
    return archive


def refused(archive: Path, folder: Path) -> str:
    """The reason why an archive is refused, after which nothing is left."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(UserError) as error:
        unpack(archive, folder)
    assert sorted(folder.parent.rglob("*")) == before
    assert str(error.value).isprintable(), "one line"
    return str(error.value)


OUTSIDE = ["../evil", "a/../../evil", "/etc/evil", "//evil", "..", "a/.."]
NOT_ALLOWED = ["..\\evil", "C:/evil", "c:evil", "a\nb", "a\x1bb"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_member_outside_of_the_folder_is_refused(name, tmp_path):
    archive = foreign(tmp_path / "a.zip", {"results/fine": b"", name: b"evil"})
    assert "its path leads out of the folder" in refused(archive, tmp_path / "in" / "out")


@pytest.mark.parametrize("name", NOT_ALLOWED)
def test_an_odd_name_is_refused(name, tmp_path):
    archive = foreign(tmp_path / "a.zip", {name: b"evil"})
    assert "its name is not allowed" in refused(archive, tmp_path / "out")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_are_refused(kind, tmp_path):
    archive = foreign(tmp_path / "a.zip", {"results/link": b"/etc/passwd"}, kind)
    assert "it is a link or a device: 'results/link'; nothing was unpacked" in refused(archive, tmp_path / "out")


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_another_compression_is_refused(compression, tmp_path):
    """Damaged LZMA data raise an error of their own."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr("a", b"1" * 99, compression)
    assert "its compression is not allowed: 'a'" in refused(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(tmp_path):
    archive = foreign(tmp_path / "a.zip", {"a": b"1"})
    with zipfile.ZipFile(archive, "a") as zipped:
        zipped.writestr("a", b"2")
    assert "it is there twice: 'a'" in refused(archive, tmp_path / "out")


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path):
    assert "cannot unpack" in refused(foreign(tmp_path / "a.zip", {"a": b"1", "a/b": b"2"}), tmp_path / "out")


@pytest.mark.parametrize(
    ("checksums", "reason"),
    [
        (f"{'0' * 64}  a\n", "'a' does not match its checksum"),
        (f"{'0' * 64}  b\n", "'a' is not in checksums.sha256"),
        (f"{hashlib.sha256(b'1').hexdigest()}  a\n{'0' * 64}  b\n", "'b' is missing"),
        ("nonsense\n", "checksums.sha256 has an odd line"),
        ("", "'a' is not in checksums.sha256"),
    ],
)
def test_wrong_checksums_are_refused(checksums, reason, tmp_path):
    archive = foreign(tmp_path / "a.zip", {"a": b"1"}, checksums=checksums)
    assert reason in refused(archive, tmp_path / "out")


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path):
    """Its members state sizes for which no disk suffices; their content is short."""
    archive = foreign(tmp_path / "a.zip", {str(k): b"1" * 1000 for k in range(5000)})
    content = archive.read_bytes()
    size = (1000).to_bytes(4, "little")
    assert content.count(size * 2) == 10_000, "compressed and full size, of each member and in the directory"
    archive.write_bytes(content.replace(size * 2, size + (0xFFFFFFFE).to_bytes(4, "little")))
    assert re.search(r"needs 21,\d+,\d+,\d+,\d+ bytes of disk space", refused(archive, tmp_path / "out"))


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no archive")
    assert "is damaged, or no archive of 'fedflat export'" in refused(tmp_path / "a.zip", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as zipped:
        zipped.writestr("a", b"1")
    assert "it has no checksums.sha256" in refused(tmp_path / "b.zip", tmp_path / "out")
    assert refused(tmp_path / "c.zip", tmp_path / "out") == f"there is no archive '{tmp_path / 'c.zip'}'"


def test_an_existing_folder_is_left_alone(files, tmp_path):
    write_archive(tmp_path / "a.zip", files)
    (tmp_path / "out").mkdir()
    assert "/out' already exists; give another folder with --out" in refused(tmp_path / "a.zip", tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "already exists" in refused(tmp_path / "a.zip", tmp_path / "link")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_archive_is_refused_or_unpacked_as_before(data, files, tmp_path):
    """Bits of an archive that have no meaning, such as times, may change without harm."""
    archive, out = tmp_path / "damaged.zip", tmp_path / "out"
    write_archive(archive, files)
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    archive.write_bytes(content)
    try:
        unpack(archive, out)
    except UserError as error:
        assert str(error).isprintable()
        assert not out.exists()
    else:
        assert {name: (out / name).read_bytes() for name in files} == {
            name: f.read_bytes() for name, f in files.items()
        }
        shutil.rmtree(out)
