"""Everything that needs the book's public address, from one setting: ``repository: {url: ...}`` in `_config.yml`.

With ``https://github.com/OWNER/NAME`` the chapters get buttons for Binder and Colab (which opens notebooks from GitHub
only), every page links to the repository and its issues, and names its address on GitHub Pages. The front page's
citation takes the address from here, too (`citing`).
"""

from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config


def buttons(repository: str) -> dict[str, str]:
    """Return the theme's setting for a repository's address; nothing for none."""
    if not repository:
        return {}
    launch = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
    if urlsplit(repository).hostname == "github.com":
        launch["colab_url"] = "https://colab.research.google.com"
    return launch


def pages_address(repository: str) -> str:
    """Return where GitHub Pages publishes a repository's book; nothing for a repository elsewhere."""
    parts = urlsplit(repository)
    owner, _, name = parts.path.strip("/").partition("/")
    return f"https://{owner.lower()}.github.io/{name}/" if parts.hostname == "github.com" and name else ""


def turn_on(app: Sphinx, config: Config) -> None:
    """Set buttons, links and address for this build."""
    options = config.html_theme_options
    repository = options.get("repository_url", "")
    if launch := buttons(repository):
        options |= {"launch_buttons": launch, "use_repository_button": True, "use_issues_button": True}
        config.html_baseurl = pages_address(repository)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("config-inited", turn_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
