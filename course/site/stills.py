"""A still of each explorable, its opening frame as SVG, for the card of its notebook.

    uv run python -m course.site.stills              writes notebooks/pictures/still-*.svg
    uv run python -m course.site.stills Roofline     one of them

Needs Chromium or Chrome. The picture is light or dark as the reader's system is, and keeps the
classes of the explorable's own. A comment in it holds the hash of what it was drawn from.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from course import explorables
from course.explorables.explorable import STYLE, Explorable, sources
from course.notebook_files import ROOT
from tests.browser.harness import CHROMIUM_FLAGS, find_chromium

PICTURES = ROOT / "notebooks" / "pictures"
# In bytes.
LARGEST = 150_000
# Of the page, so that the frame has its full width, and around the drawing; in pixels.
WIDTH, MARGIN = 1100, 18
# Ink and paper, as JupyterLab's themes have them.
THEMES = {"light": ("#1f1f1f", "#ffffff"), "dark": ("#e0e0e0", "#111111")}
# From here on the style sheet says how the pen's words look.
PEN = "/* The pen's words"
COMMANDS = "uv run python -m course.site.stills"

# The drawing with its grips as circles, and the colours that the theme gives its variables.
TAKE = """
(names) => {
    const root = document.querySelector('.course-explorable');
    const picture = root.querySelector('svg.xp-picture').cloneNode(true);
    const stage = root.querySelector('.xp-stage').getBoundingClientRect();
    const make = (tag, given) => {
        const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
        for (const [name, value] of Object.entries(given)) node.setAttribute(name, value);
        picture.append(node);
        return node;
    };
    for (const grip of root.querySelectorAll('.xp-grip')) {
        const box = grip.getBoundingClientRect();
        const [cx, cy] = [box.x + box.width / 2 - stage.x, box.y + box.height / 2 - stage.y];
        const hue = getComputedStyle(grip).getPropertyValue('--hue') ? '' : ' xp-blue';
        const look = grip.getAttribute('class').replace('xp-dark', 'xp-faint') + hue;
        const place = { cx: cx.toFixed(1), cy: cy.toFixed(1) };
        make('circle', { ...place, class: `xp-rim ${look}`, r: box.width / 2 + 1.5 });
        make('circle', { ...place, class: 'xp-fill xp-paper', r: box.width / 2 });
        make('circle', { ...place, class: `xp-fill ${look}`, r: box.width / 2 - 3 });
    }
    const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
    const pen = canvas.getContext('2d', { willReadFrequently: true });
    const probe = root.appendChild(document.createElement('i'));
    const colours = names.map((name) => {
        probe.style.color = `var(${name})`;
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = getComputedStyle(probe).color;
        pen.fillRect(0, 0, 1, 1);
        const parts = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
        return [name, '#' + parts.map((part) => part.toString(16).padStart(2, '0')).join('')];
    });
    probe.remove();
    return {
        drawing: [...picture.childNodes].map((node) =>
            new XMLSerializer().serializeToString(node)).join('\\n'),
        colours,
        ask: root.querySelector('.xp-ask').textContent,
        width: stage.width,
        height: Number(picture.getAttribute('height')),
    };
}
"""


def every() -> list[type[Explorable]]:
    """The explorables, in the order of their notebooks."""
    return sorted(Explorable.__subclasses__(), key=lambda each: each.number)


def path(explorable: type[Explorable]) -> Path:
    """Where the still of an explorable lies."""
    return PICTURES / f"still-{explorable.number}.svg"


def hash_of(explorable: type[Explorable]) -> str:
    """16 hexadecimal digits of all files that the picture is drawn from."""
    files = [*reversed(sources(explorable.script)), STYLE]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stale(explorable: type[Explorable]) -> str | None:
    """What is wrong with the still of an explorable and how to mend it, in a sentence, or None."""
    file, mend = path(explorable), f"run: {COMMANDS} {explorable.__name__}"
    if not file.exists():
        return f"{file.name} is missing; {mend}"
    found = re.search(r"<!-- sources (\w+) -->", file.read_text(encoding="utf-8"))
    if found is None or found[1] != hash_of(explorable):
        return f"{file.name} was drawn from other sources than those that are there; {mend}"
    return None


def drawn(explorable: type[Explorable], browser: Browser) -> str:
    """The still, drawn now.

    Raises ValueError for one that is too large, RuntimeError for an explorable that fails.
    """
    style = STYLE.read_text(encoding="utf-8")
    names = sorted(set(re.findall(r"--xp-\w+(?=:)", style)))
    page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        opened = {theme: _opened(page, explorable, theme, names) for theme in THEMES}
    except Exception as error:
        if errors:
            raise RuntimeError(f"{explorable.__name__}: {'; '.join(errors)}") from error
        raise
    finally:
        page.close()
    colours = {theme: dict(found["colours"]) for theme, found in opened.items()}
    text = _document(opened["light"], colours, style[style.index(PEN) :], hash_of(explorable))
    if len(text.encode()) >= LARGEST:
        raise ValueError(f"{explorable.__name__}: {len(text)} bytes; fewer than {LARGEST} wanted")
    return text


def _opened(page: Page, explorable: type[Explorable], theme: str, names: list[str]) -> dict:
    ink, paper = THEMES[theme]
    page.set_content(
        f'<body data-theme="{theme}" style="--jp-ui-font-color1: {ink}; '
        f'--jp-layout-color1: {paper}">{explorables.alive(explorable)}</body>'
    )
    page.locator(".xp-picture[aria-label]").wait_for(timeout=20_000)
    return page.evaluate(TAKE, names)


def _document(found: dict, colours: dict[str, dict[str, str]], pen: str, digest: str) -> str:
    """One SVG file: a title, the style, a ground, the drawing."""
    width, height = found["width"] + 2 * MARGIN, found["height"] + 2 * MARGIN
    light, dark = (_variables(colours[theme]) for theme in ("light", "dark"))
    title = found["ask"].replace("&", "&amp;").replace("<", "&lt;")
    edge = f'width="{width - 1:g}" height="{height - 1:g}" rx="10"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" class="xp-picture" role="img" width="{width:g}" \
height="{height:g}" viewBox="0 0 {width:g} {height:g}">
<!-- sources {digest} -->
<title>{title}</title>
<style>
.xp-picture {{
  font-family: system-ui, sans-serif;
  font-size: 13px;
  font-variant-numeric: tabular-nums;
{light}
}}
@media (prefers-color-scheme: dark) {{
.xp-picture {{
{dark}
}}
}}
{pen.strip()}
.xp-rim {{ fill: var(--hue); }}
.xp-ground {{ fill: var(--xp-paper); stroke: var(--xp-hair); }}
</style>
<rect class="xp-ground" x="0.5" y="0.5" {edge}/>
<g transform="translate({MARGIN} {MARGIN})">
{_plain(found["drawing"])}
</g>
</svg>
"""


def _variables(colours: dict[str, str]) -> str:
    return "\n".join(f"  {name}: {colour};" for name, colour in colours.items())


def _plain(drawing: str) -> str:
    """Without the namespace on each element, and with places to a tenth of a pixel."""

    def rounded(attribute: re.Match[str]) -> str:
        return re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", attribute[0])

    return re.sub(r'="[^"]*"', rounded, drawing.replace(' xmlns="http://www.w3.org/2000/svg"', ""))


def shape(text: str) -> list[tuple[str, str]]:
    """Tags and classes of a picture, in order; places and colours left out."""
    return re.findall(r'<(\w+)(?: class="([^"]*)")?', text)


def main(names: list[str]) -> int:
    """Write the stills of these explorables, or of all; 2 for a name that is none."""
    known = {each.__name__: each for each in every()}
    if wrong := [name for name in names if name not in known]:
        print(f"no explorable: {', '.join(wrong)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    chromium = find_chromium()
    if chromium is None:
        print("no chromium, chromium-browser or google-chrome on PATH", file=sys.stderr)
        return 1
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        for name in names or known:
            text = drawn(known[name], browser)
            file = path(known[name])
            file.write_text(text, encoding="utf-8")
            print(f"{file.relative_to(ROOT)}: {len(text.encode())} bytes")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
