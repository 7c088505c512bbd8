"""Pages of the folder spec/ on the site: they stay where a second implementation looks for them."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File


def on_files(files: Any, config: Any) -> Any:
    """Add every chapter to the files of the site."""
    folder = Path(config["config_file_path"]).parent / "spec"
    for page in sorted(folder.glob("*.md")):
        files.append(File.generated(config, f"spec/{page.name}", abs_src_path=str(page)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links of docs/ lead to spec/, which stands beside it in the repository and below it on
    the site.
    """
    return markdown.replace("](../spec/", "](spec/")
