"""Elements of an XML document, one after the other. No entities, no type declaration, bounded depth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from gnnexp.errors import DataError, Problem

_MAX_DEPTH = 256  # groups of groups; a document of open tags alone would grow the list of parents.
_CHUNK = 1 << 20  # bytes that are parsed before their events leave.
# Bytes of a tag, a comment or an instruction. Before version 2.6, expat reads one that is not whole again from its
# beginning with every chunk: 100 MB would take a minute. Text between tags comes in pieces.
_LONGEST = 4 << 20


class Event(NamedTuple):
    """An element opens or closes.

    Attributes:
        opens: whether it opens.
        name: its name; elements of other name spaces than the root's have that in braces before it.
        attributes: its attributes without a name space.
        text: the text directly in it; empty while it opens.
        parent: name of the element around it, or an empty text.
    """

    opens: bool
    name: str
    attributes: dict[str, str]
    text: str
    parent: str


def xml_events(path: Path, content: bytes, root: str) -> Iterator[Event]:
    """All elements of the document `content`.

    Args:
        path: the file, for messages.
        content: bytes of the document, in any encoding that it declares.
        root: name that the element around all others must have.

    Raises:
        DataError: it has another root, a type declaration or a tag of many megabytes, is nested too deeply, or is not
            whole.
    """
    reader, waiting = _Reader(path), 0
    try:
        for start in range(0, max(len(content), 1), _CHUNK):
            reader.parser.Parse(content[start : start + _CHUNK], start + _CHUNK >= len(content))
            waiting = 0 if reader.found_any else waiting + _CHUNK
            reader.found_any = False
            if waiting > _LONGEST:
                raise DataError(
                    Problem(
                        str(path),
                        f"a tag, a comment or blanks around byte {start}",
                        f"must have at most {_LONGEST} bytes",
                        "make it shorter",
                    )
                )
            for event in reader.events:
                if not event.parent and event.name != root:
                    fix = "give the file the ending of its format"
                    raise DataError(Problem(str(path), f"<{event.name}>", f"the document must be a <{root}>", fix))
                yield event
            reader.events.clear()
    except expat.ExpatError as error:
        raise DataError(
            Problem(str(path), str(error), "must be a whole XML document", "write or copy the file again")
        ) from None


class _Reader:
    """Makes events of what expat finds.

    Attributes:
        found_any: whether expat has found something whole, also if it is no event.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        self.found_any = False
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        if hasattr(self.parser, "SetReparseDeferralEnabled"):  # expat 2.6: else whole tags would wait for more bytes
            self.parser.SetReparseDeferralEnabled(False)
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.StartElementHandler = self._open
        self.parser.EndElementHandler = self._close
        self.parser.CharacterDataHandler = self._text
        self.parser.DefaultHandler = self._other
        self._space: str | None = None
        self._parents: list[tuple[str, dict[str, str], list[str]]] = []

    def _other(self, _: str) -> None:
        self.found_any = True

    def _refuse(self, *_: object) -> None:
        raise DataError(
            Problem(
                str(self.path),
                "<!DOCTYPE",
                "documents with a type declaration are not read, since its entities may expand to any size",
                "remove the declaration",
            )
        )

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        if self._space is None:
            self._space = space
        if len(self._parents) == _MAX_DEPTH:
            raise DataError(
                Problem(
                    str(self.path),
                    f"<{local}>",
                    f"elements are nested in more than {_MAX_DEPTH} others",
                    "write the file without these levels",
                )
            )
        own = local if space in ("", self._space) else f"{{{space}}}{local}"
        parent = self._parents[-1][0] if self._parents else ""
        own_attributes = {key: value for key, value in attributes.items() if " " not in key}
        self._parents.append((own, own_attributes, []))
        self.events.append(Event(True, own, own_attributes, "", parent))
        self.found_any = True

    def _close(self, _: str) -> None:
        own, given, texts = self._parents.pop()
        parent = self._parents[-1][0] if self._parents else ""
        self.events.append(Event(False, own, given, "".join(texts), parent))
        self.found_any = True

    def _text(self, text: str) -> None:
        self._parents[-1][2].append(text)
        self.found_any = True
