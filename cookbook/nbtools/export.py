"""Export: an executed notebook as one HTML page and its figures as PNG files.

In:  an executed notebook, a folder.     Out: the paths written, the page first.
Leaves out: formulas without a network: the page loads MathJax when there is one to draw.
"""

import base64
from pathlib import Path

from cookbook.nbtools.cells import code_cells, read

PAGE = """{% extends 'index.html.j2' %}
{% block html_head_js_requirejs %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
"""
NO_FORMULAS = "{% block html_head_js_mathjax %}{% endblock %}"


def export(notebook: Path | str, folder: Path | str) -> list[Path]:
    """Write NAME.html, with everything in it, and NAME-figure-1.png, -2, ... into the folder."""
    from nbconvert import HTMLExporter

    notebook, folder = Path(notebook), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    nb = read(notebook)
    formulas = any("$" in cell.source for cell in nb.cells if cell.cell_type == "markdown")
    page = HTMLExporter(template_name="lab", raw_template=PAGE + NO_FORMULAS * (not formulas), embed_images=True)
    html, _ = page.from_notebook_node(nb, {"metadata": {"name": notebook.stem, "path": str(notebook.parent)}})
    paths = [folder / f"{notebook.stem}.html"]
    paths[0].write_text(html, encoding="utf-8")
    drawn = [output.get("data", {}).get("image/png") for cell in code_cells(nb) for output in cell.outputs]
    for number, figure in enumerate(filter(None, drawn), start=1):
        paths.append(folder / f"{notebook.stem}-figure-{number}.png")
        paths[-1].write_bytes(base64.b64decode(figure))
    return paths
