"""What an audit found, as text, figure and file."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedleak.audit import writing
from fedleak.audit.findings import Findings
from fedleak.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Report(Findings):
    """What an audit found; its tables are those of `fedleak.audit.findings.Findings`."""

    def headline(self) -> tuple[str, str, str]:
        """Return three sentences: what leaks, to whom, and what would reduce it."""
        return writing.headline(self)

    def figure(self) -> "Figure":
        """Draw every attack's instance accuracy beside the guesses, and what each remedy leaves."""
        from fedleak.audit import drawing

        return drawing.figure(self)

    def svg(self) -> str:
        """Return the figure as SVG with real text; "" of a report that has none."""
        from fedleak.audit import drawing

        return drawing.svg(self.figure())

    def to_markdown(self, figure: str = "", level: int = 1) -> str:
        """Return the report as Markdown.

        Parameters
        ----------
        figure
            Address of the figure, if there is to be one.
        level
            Of the title: 2 where the report is part of a page.
        """
        return writing.markdown(self, figure, level)

    def to_html(self) -> str:
        """Return the report as one HTML page that needs nothing else."""
        return writing.html(self.to_markdown("FIGURE"), self.svg())

    def save(self, path: Path | str) -> list[Path]:
        """Write the report: ``.html``, or ``.md`` with the figure as ``.svg`` beside it. Returns the files.

        Raises
        ------
        ValueError
            For another ending.
        PermissionError
            If the folder cannot be written to.
        """
        path = Path(path)
        writing.check_ending(path)
        if path.suffix == ".html":
            write_text(path, self.to_html())
            return [path]
        picture, drawn = path.with_suffix(".svg"), self.svg()
        write_text(path, self.to_markdown(figure=picture.name))
        if not drawn:
            return [path]
        write_text(picture, drawn)
        return [path, picture]
