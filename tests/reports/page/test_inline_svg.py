"""SVG files inside a page: nothing of them runs, loads, or reaches the rest of the page."""

from __future__ import annotations

from pathlib import Path

from gnnexp.reports.page.inline_svg import inline_svg

_HOSTILE = """<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="72pt" height="36pt"
 viewBox="0 0 72 36" onload="alert(1)">
 <metadata><x xmlns="http://example.com/">http://example.com</x></metadata>
 <style>*{fill:red}</style><script>alert(2)</script>
 <defs><clipPath id="c"><rect width="1" height="1"/></clipPath><path id="glyph" d="M 0 0"/></defs>
 <image xlink:href="http://example.com/x.png"/><a xlink:href="http://example.com"><text>link</text></a>
 <use xlink:href="http://example.com/y.svg#z"/><use xlink:href="#glyph" clip-path="url(#c)" style="fill: #000000"/>
 <text onclick="alert(3)">a &lt;b&gt; &amp; c</text>
</svg>"""


def test_only_the_drawing_stays(tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    file.write_text(_HOSTILE)
    drawing = inline_svg(file, "f1-", 'say "x"')
    for word in ("http", "alert", "onload", "onclick", "style>", "image", "<a", "metadata"):
        assert word not in drawing, word
    assert '<clipPath id="f1-c">' in drawing and 'href="#f1-glyph"' in drawing and "url(#f1-c)" in drawing
    assert "a &lt;b&gt; &amp; c" in drawing and 'aria-label="say &quot;x&quot;"' in drawing
    assert "width:96px" in drawing, "72 points"
    assert "fill: currentColor" in drawing
