"""Packs: many compiled games in one small file, since every game carries the same interpreter library.

In:  tasks whose games are in the cache.     Out: data/games/CONFIG-SPLIT.tar.xz, and back into the cache.
Measured: a compiled game is 386 KB alone and about 15 KB in a pack.
"""

import fcntl
import lzma
import tarfile
import tempfile
from pathlib import Path

from cookbook.paths import data_dir
from cookbook.tasks import Task

FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 26}]


def pack_path(task: Task) -> Path:
    """Where the pack of this task's configuration and split lies, if it is shipped."""
    return data_dir() / "games" / f"{task.id.split('/')[0]}-{task.split}.tar.xz"


def write_pack(games: list[Path], pack: Path) -> None:
    """Pack compiled games with their JSON; the same games give the same bytes."""
    pack.parent.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(pack, "wb", format=lzma.FORMAT_XZ, filters=FILTERS) as out,
        tarfile.open(fileobj=out, mode="w") as tar,
    ):
        for suffix in (".json", ".z8"):
            for game in games:
                file = game.with_suffix(suffix)
                row = tarfile.TarInfo(file.name)
                row.size = file.stat().st_size
                with open(file, "rb") as data:
                    tar.addfile(row, data)


def unpack(pack: Path, folder: Path) -> None:
    """Every game of the pack into the folder; processes that want the same pack wait for the first.

    Raises ValueError naming a pack that cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f".unpacked-{pack.name}"
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return
        try:
            with (
                tarfile.open(pack, "r:xz") as tar,
                tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as new,
            ):
                tar.extractall(new, filter="data")
                for file in sorted(Path(new).iterdir()):  # x.json before x.z8: a game that is there is there whole
                    file.replace(folder / file.name)
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            raise ValueError(f"game pack {pack} cannot be read ({error}): fetch it again") from error
        done.touch()
