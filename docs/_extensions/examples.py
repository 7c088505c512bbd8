"""Show the doctests of a docstring as its section of examples, where it has none of its own."""

import re
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Put a heading before the first doctest that stands under none."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of one object, before it is parsed."""
        text = obj.docstring.value if obj.docstring else ""
        if (
            obj.docstring
            and ">>> " in text
            and not re.search(r"^Examples\n-+$", text, flags=re.MULTILINE)
        ):
            before, prompt, after = text.partition(">>> ")
            obj.docstring.value = f"{before.rstrip()}\n\nExamples\n--------\n{prompt}{after}"
