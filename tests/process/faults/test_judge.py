"""What the judge of a group (group_scene.py) must not take for a finding."""

from __future__ import annotations

from pathlib import Path

from support.group_scene import GroupScene
from support.workers import until


def test_the_log_of_a_life_that_never_began_is_not_the_source_s(tmp_path: Path, own_domain: str) -> None:
    """Stores that gave different identities to lives that died before BEGIN take that of the first one that
    begins.

    A torture run looked at the log of such a life ever after, and found it empty.
    """
    with GroupScene(tmp_path, own_domain, 20_261_122) as scene:
        source, (one, *others) = scene.source, scene.stores
        one.start()
        source.start()
        until("one store has given it an identity", lambda: list(Path(one.settings.directory).glob("logs/*/head")))
        scene.kill(source)
        for store in others:
            store.start()
        source.start("segment.publish=kill@2")
        source.wait_died()  # with a board that has the others' identity, and no BEGIN
        scene.judge(source)
        assert scene.ends() == [0, 0]
        for worker in (source, *scene.receivers):
            worker.start()
        until("a third identity has begun", lambda: scene.processed >= 100, scene.look)
        scene.kill(*others)
        assert all(end > 0 for end in scene.ends())
