"""Offer the chapters on Binder and Colab once the book knows its repository.

One setting turns the buttons on, in `_config.yml`: ``repository: {url: https://github.com/OWNER/NAME}``. Colab opens
notebooks from GitHub only.
"""

from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config


def buttons(repository: str) -> dict[str, str]:
    """Return the theme's setting for a repository's address; nothing for none."""
    if not repository:
        return {}
    options = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
    if urlsplit(repository).hostname == "github.com":
        options["colab_url"] = "https://colab.research.google.com"
    return options


def turn_on(app: Sphinx, config: Config) -> None:
    """Set the buttons for this build."""
    options = config.html_theme_options
    if launching := buttons(options.get("repository_url", "")):
        options["launch_buttons"] = launching


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("config-inited", turn_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
