"""Families of published data sets with one file each: which file is meant, and what its data set is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from gnnexp.components.texts import hydra_text
from gnnexp.datasets.base import data_folder, listed, where_to_put
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file, is_folder

_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
_SHOWN = 8


@dataclass(frozen=True)
class Archives:
    """A family of data sets, each in one file.

    Attributes:
        suffix: ending of the files.
        fits: whether a file is of the family. It reads names of members only.
        default: the name of the data set that is read if a user gives neither name nor path.
        files: files of published data sets by name, if they do not follow from the name.
        prefix: beginning of folders in `$GNNEXP_DATA`.
        dashes: whether a dash in a name is an underscore in the file's name.
    """

    suffix: str
    fits: Callable[[Path], bool]
    default: str
    files: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    dashes: bool = True

    def name(self, path: str | None, name: str) -> str:
        """The name of the data set: `name`, but that of the only file at `path` in place of the default."""
        if path is None or name != self.default:
            return name
        place = Path(path).expanduser()
        if is_folder(place):
            found = [] if self._usual(place, name) else self.within(place)
        else:
            found = [place] if is_file(place) and place.stem else []
        return self._name_of(found[0]) if len(found) == 1 else name

    def file(self, path: str | None, name: str) -> Path:
        """The file of a data set.

        Args:
            path: the file or its folder; None: the folder in `$GNNEXP_DATA`.
            name: see `name`.

        Raises:
            DataError: there is no such file, or several may be meant. Lists what is there.
        """
        usual = self.prefix + (name.lower() if self.prefix else name)
        place = data_folder(path, usual, *dict.fromkeys((usual.replace("-", "_"), usual.lower())))
        if is_file(place):
            return place
        if not place.is_dir():
            raise DataError(
                Problem(
                    "dataset.path",
                    str(place),
                    f"must be the folder of the dataset's files, or its {self.suffix} file",
                    where_to_put(usual),
                )
            )
        if (file := self._usual(place, name)) is not None:
            return file
        files = self.within(place)
        named = [candidate for candidate in files if self._name_of(candidate) == name]
        # A folder of its own has one data set. In a user's folder, another name than the default is a demand.
        if len(named or files) == 1 and (named or path is None or name == self.default):
            return (named or files)[0]
        others = " or ".join(f"dataset.name={self._name_of(candidate)}" for candidate in files[:_SHOWN])
        raise DataError(
            Problem(
                str(place / self._file_names(name)[0]),
                "missing",
                f"this file of the dataset is needed; the folder has {listed(place)}",
                f"set {others}" if files else where_to_put(usual),
            )
        )

    def within(self, place: Path) -> list[Path]:
        """The files of the family in a folder, or the file itself."""
        try:
            files = sorted(place.iterdir()) if is_folder(place) else [place]
        except OSError:
            return []
        return [one for one in files if one.suffix.lower() == self.suffix and is_file(one) and self._fits(one)]

    def recognised(self, place: Path) -> list[str] | None:
        """See `Dataset.recognised`.

        Raises:
            DataError: the folder has several data sets of the family.
        """
        files = self.within(place)
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:_SHOWN])
            raise DataError(
                Problem("PATH", str(place), f"has {len(files)} data sets: {names}", f"name one: gnnexp data {files[0]}")
            )
        return name_override(self._name_of(files[0])) if files else None

    def _usual(self, folder: Path, name: str) -> Path | None:
        return next((folder / file for file in self._file_names(name) if is_file(folder / file)), None)

    def _file_names(self, name: str) -> list[str]:
        if name in self.files:
            return [self.files[name]]
        stems = dict.fromkeys((name.replace("-", "_") if self.dashes else name, name))
        return [f"{stem}{self.suffix}" for stem in stems]

    def _name_of(self, file: Path) -> str:
        known = next((name for name, usual in self.files.items() if usual == file.name), None)
        return known or (file.stem.replace("_", "-") if self.dashes else file.stem)

    def _fits(self, file: Path) -> bool:
        try:
            return self.fits(file)
        except DataError:
            return False


@dataclass(kw_only=True, eq=False)
class ArchiveFile:
    """The file of a data set of such a family, and what happens to its edges: a part of a `Dataset`.

    Attributes:
        archives: the family.
        name: name of the data set. With a path, the default gives way to the name of the only file there.
        path: the file or its folder; null = the folder in `$GNNEXP_DATA`.
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
    """

    is_published: ClassVar[bool] = True
    archives: ClassVar[Archives]

    name: str
    path: str | None = None
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"

    def __post_init__(self) -> None:
        self.name = self.archives.name(self.path, self.name)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A file of the family, or a folder with one."""
        return cls.archives.recognised(place)

    def sources(self) -> list[Path]:
        """The file."""
        return [self.archives.file(self.path, self.name)]


def name_override(name: str) -> list[str]:
    """The override with the name of a data set. A name with special characters follows from the file alone."""
    return [f"dataset.name={hydra_text(name)}"] if _PLAIN.fullmatch(name) else []
