"""The front page's gallery: the figure that the executed chapter on images has made."""

import json

from generated import GENERATED

from fedleak_book import paths

CELL = "threats"


def fragments() -> dict[str, str]:
    """Return the figure as a fragment; its picture lies beside it. Raises `FileNotFoundError` before the execution."""
    cells = json.loads(paths.executed_notebook("agic").read_text(encoding="utf-8"))["cells"]
    (cell,) = [cell for cell in cells if cell.get("id") == CELL]
    (image,) = [
        output["data"]["image/svg+xml"] for output in cell["outputs"] if "image/svg+xml" in output.get("data", {})
    ]
    look = cell["metadata"]["mystnb"]
    picture = GENERATED / "what-comes-back.svg"
    picture.write_text("".join(image), encoding="utf-8")
    lines = [
        f":::{{figure}} /book/_generated/{picture.name}",
        f":alt: {look['image']['alt']}",
        f":class: {look['image']['classes']}",
        "",
        f"{look['figure']['caption']} From {{ref}}`the chapter on images <agic-what-comes-back>`.",
        ":::",
        "",
    ]
    return {"what-comes-back": "\n".join(lines)}
