"""Show the version of the library on every page."""

from mkdocs.config.defaults import MkDocsConfig

import ultralif


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the version into the header and the titles of the pages."""
    config.site_name = f"{config.site_name} {ultralif.__version__}"
    return config
