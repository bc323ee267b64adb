"""Which mounts keep locks on one machine, read from files in the format of /proc/self/mountinfo."""

from pathlib import Path

import pytest

from fedflat.bench.files.mounts import locks_on_this_machine_only

NFS = "61 28 0:47 / {} rw,relatime shared:31 - nfs4 server:/export rw,vers=4.2,proto=tcp,{},addr=10.0.0.1\n"
ROOT = "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


@pytest.mark.parametrize(
    ("mounts", "reason"),
    [
        (ROOT, None),
        (ROOT + NFS.format("/shared", "local_lock=none"), None),
        (ROOT + NFS.format("/shared", "local_lock=all"), "'/shared' is mounted as nfs4, local_lock=all"),
        (ROOT + NFS.format("/shared/me", "local_lock=all"), "'/shared/me' is mounted as nfs4, local_lock=all"),
        (ROOT + NFS.format("/share", "local_lock=all"), None),
        (NFS.format("/", "nolock") + ROOT, None),
        (ROOT + "7 28 0:9 / /shared rw - lustre 10@tcp:/a rw,localflock", "'/shared' is mounted as lustre, localflock"),
        (ROOT + "7 28 0:9 / /shared rw - lustre 10@tcp:/a rw,flock", None),
        (ROOT + "7 28 0:9 / /shared rw - fuse.sshfs me@there: rw", "'/shared' is mounted as fuse.sshfs"),
    ],
)  # fmt: skip
def test_a_mount_that_keeps_locks_on_the_machine_is_named(mounts: str, reason: str | None, tmp_path: Path) -> None:
    """The mount nearest to the folder counts, and of two at one place the later."""
    (tmp_path / "mountinfo").write_text(mounts, encoding="utf-8")
    assert locks_on_this_machine_only(Path("/shared/me/results"), tmp_path / "mountinfo") == reason


def test_a_place_with_a_space(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(NFS.format(r"/my\040data", "local_lock=flock"), encoding="utf-8")
    reason = locks_on_this_machine_only(Path("/my data/results"), tmp_path / "mountinfo")
    assert reason == "'/my data' is mounted as nfs4, local_lock=flock"


def test_a_link_to_a_shared_folder(tmp_path: Path) -> None:
    """As if the mount were in the folder to which `results` leads."""
    (tmp_path / "shared" / "me").mkdir(parents=True)
    (tmp_path / "results").symlink_to(tmp_path / "shared" / "me")
    (tmp_path / "mountinfo").write_text(ROOT + NFS.format(tmp_path / "shared", "nolock"), encoding="utf-8")
    reason = locks_on_this_machine_only(tmp_path / "results" / "runs", tmp_path / "mountinfo")
    assert reason == f"'{tmp_path}/shared' is mounted as nfs4, nolock"


def test_this_machine_says_nothing_about_its_own_disk(tmp_path: Path) -> None:
    assert locks_on_this_machine_only(tmp_path) is None
    assert locks_on_this_machine_only(tmp_path, tmp_path / "missing") is None
