"""What the doctor makes of mount tables and of logind's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engine.doctor import file_system, removes_ipc

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
25 22 0:22 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k
30 22 0:40 / /data rw - nfs4 server:/data rw,vers=4.2
31 30 0:41 / /data/local\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /database rw - btrfs /dev/sdc rw
33 22 0:43 / /twice rw - ext4 /dev/sdd rw
34 22 0:44 / /twice rw - fuse.sshfs host: rw
a line that is none
"""


@pytest.mark.parametrize(
    ("path", "kind", "mount"),
    [
        ("/var/lib/stores/a", "ext4", "/"),
        ("/dev/shm", "tmpfs", "/dev/shm"),
        ("/data/a", "nfs4", "/data"),
        ("/data/local disk/a", "xfs", "/data/local disk"),
        ("/database/a", "btrfs", "/database"),
        ("/twice/a", "fuse.sshfs", "/twice"),
    ],
)
def test_a_path_lies_on_the_deepest_mount_the_last_one_on_top(path: str, kind: str, mount: str) -> None:
    assert file_system(Path(path), MOUNTS) == (kind, mount)


def test_without_a_mount_table_the_file_system_is_unknown() -> None:
    assert file_system(Path("/a"), "") == ("unknown", "")


@pytest.mark.parametrize(
    ("texts", "removes"),
    [
        ([], True),
        (["[Login]\n#RemoveIPC=no\n"], True),
        (["[Login]\nRemoveIPC=no\n"], False),
        (["[Login]\n RemoveIPC = 0 \n"], False),
        (["RemoveIPC=no\n", "RemoveIPC=yes\n"], True),
        (["RemoveIPC=yes\n", "RemoveIPC=false\n"], False),
    ],
)
def test_logind_removes_what_a_user_shares_unless_the_last_file_says_no(texts: list[str], removes: bool) -> None:
    assert removes_ipc(texts) == removes
