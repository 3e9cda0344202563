"""A report as one HTML file that needs nothing else: data, styles and plotly.js are inside.

plotly.js comes from the installed `plotly` package. The page may load nothing (its content security
policy says so), so it looks the same on a machine without a network, in ten years.
"""

import functools
import html
from collections.abc import Sequence
from importlib import resources

import msgspec

from steelyard.lab.report.figures import Figure
from steelyard.lab.report.tables import Report, Table

__all__ = ["as_html"]

_LONGEST_FIGURE = 40
"""Longer cells hold sentences."""


def as_html(report: Report, figures: Sequence[Figure]) -> str:
    """The whole page; 5 MB, nearly all of them plotly.js."""
    state = "valid" if report.is_valid else "invalid"
    body = [
        f"<h1>{_text(report.title)}</h1>",
        f'<p class="verdict {state}">{_text(report.verdict)}</p>',
        _list(report.reasons, "reasons"),
        _list(report.findings, "findings"),
        *(_table(table) for table in report.tables[:1]),
        '<div class="figures">',
        *(_figure(number, figure) for number, figure in enumerate(figures)),
        "</div>",
        *(_table(table) for table in report.tables[1:]),
    ]
    return _PAGE.format(
        title=_text(report.title),
        style=_STYLE,
        body="\n".join(part for part in body if part),
        plotly=_plotly(),
        figures=_json([[figure.traces, figure.layout] for figure in figures]),
        script=_SCRIPT,
    )


@functools.cache
def _plotly() -> str:
    source = resources.files("plotly") / "package_data" / "plotly.min.js"
    return _in_script(source.read_text(encoding="utf-8"))


def _figure(number: int, figure: Figure) -> str:
    note = f"<figcaption>{_text(figure.note)}</figcaption>" if figure.note else ""
    return (
        f"<figure><h2>{_text(figure.title)}</h2>"
        f'<div class="plot" id="plot-{number}"></div>{note}</figure>'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    return (
        f'<section><h2>{_text(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>{note}</section>"
    )


def _cell(text: str) -> str:
    kind = ' class="prose"' if len(text) > _LONGEST_FIGURE else ""
    return f"<td{kind}>{_text(text)}</td>"


def _list(sentences: Sequence[str], kind: str) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f'<ul class="{kind}">{items}</ul>'


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _json(value: object) -> str:
    return _in_script(msgspec.json.encode(value).decode())


def _in_script(text: str) -> str:
    """So that nothing in it ends the script element (WHATWG HTML, "Restrictions for contents of
    script elements")."""
    return text.replace("</", "<\\/").replace("<!--", "<\\!--")


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5c6670; --paper: #fff; --line: #d9dee3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #9aa4ae; --paper: #16191d; --line: #363d45; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1360px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .4rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
.verdict { display: inline-block; font-weight: 600; padding: .15rem .7rem; border-radius: 1rem; }
.valid { background: #009e7333; } .invalid { background: #d55e0044; }
.reasons { color: #d55e00; font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr));
  gap: 0 1.5rem; }
figure { margin: 0; min-width: 0; } .plot { height: 340px; }
figcaption, .note { color: var(--soft); font-size: .85rem; margin: .2rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td:not(:last-child) { white-space: nowrap; } td:last-child { min-width: 5rem; }
td.prose { min-width: 17rem; }
"""

_SCRIPT = """
const style = getComputedStyle(document.documentElement);
const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name).trim());
const axis = { gridcolor: line, zerolinecolor: line, automargin: true, tickmode: "auto" };
FIGURES.forEach(([traces, layout], number) => {
  const axes = {};
  for (const name of ["xaxis", "yaxis", "yaxis2"])
    if (layout[name]) axes[name] = { ...axis, ...layout[name] };
  Plotly.newPlot(`plot-${number}`, traces, {
    ...layout, ...axes,
    font: { color: ink, size: 12 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 60, r: 20, t: 28, b: 80 },
    legend: { orientation: "h", y: -0.24, yanchor: "top" }, hovermode: "closest",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
  }, { responsive: true, displaylogo: false });
});
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval';
  img-src data: blob:; font-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{plotly}</script>
<script>const FIGURES = {figures};{script}</script>
</body>
</html>
"""
