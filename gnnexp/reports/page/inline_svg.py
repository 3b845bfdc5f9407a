"""A figure's SVG file as a part of an HTML page: its ids, style and colours do not affect the rest of the page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import escape
from pathlib import Path

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
# Elements that a still picture does not need. They could run code, load files, or (style) change the rest of the page.
_LEFT_OUT = ("metadata", "style", "script", "foreignObject", "image", "a", "animate", "set")
# The rules of matplotlib's style element, which is left out above.
_ROOT_STYLE = "stroke-linejoin:round;stroke-linecap:butt"
# Colours that suit only a light page: text, paper, blue and pale grey. A colour of page.css, which changes with the
# page, replaces each of them.
_COLOURS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#0072b2": "var(--blue)", "#dddddd": "var(--pale)"}
_PX_PER_PT = 96 / 72
# A figure does not shrink below this share of its size, because its text would be unreadable. Its box scrolls.
_LEAST_SHARE = 0.7


def inline_svg(file: Path, prefix: str, alt: str) -> str:
    """The `svg` element of `file`.

    Args:
        file: an SVG file, as matplotlib writes it.
        prefix: prefix of every id, so that no two figures of a page share an id.
        alt: description for readers who cannot see the figure.
    """
    root = ET.fromstring(file.read_bytes())
    _clean(root, prefix)
    box = root.get("viewBox", "0 0 432 288")
    width = float(box.split()[2]) * _PX_PER_PT
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", alt)
    root.set(
        "style",
        f"{_ROOT_STYLE};fill:currentColor;width:{width:.0f}px;min-width:{_LEAST_SHARE * width:.0f}px;"
        "max-width:100%;height:auto",
    )
    return _text(root)


def _clean(element: ET.Element, prefix: str) -> None:
    """Remove namespaces, dangerous parts and shared ids from an element and all elements below it."""
    element.tag = element.tag.removeprefix(_SVG)
    element.attrib = dict(filter(None, (_attribute(name, value, prefix) for name, value in element.attrib.items())))
    for child in list(element):
        if child.tag.startswith(_SVG) and child.tag.removeprefix(_SVG) not in _LEFT_OUT:
            _clean(child, prefix)
        else:
            element.remove(child)


def _attribute(name: str, value: str, prefix: str) -> tuple[str, str] | None:
    name = name.removeprefix(_XLINK)
    if name.startswith(("on", "{")):
        return None
    if name == "id":
        return name, prefix + value
    if name == "href":
        return (name, f"#{prefix}{value[1:]}") if value.startswith("#") else None
    value = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}\1)", value)
    if name in ("style", "fill", "stroke"):
        value = re.sub("|".join(_COLOURS), lambda match: _COLOURS[match[0]], value)
    return name, value


def _text(element: ET.Element) -> str:
    """An element as HTML, without white space between elements."""
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in element.attrib.items())
    inner = escape((element.text or "").strip()) + "".join(map(_text, element))
    tail = escape((element.tail or "").strip())
    return f"<{element.tag}{attributes}>{inner}</{element.tag}>{tail}"
