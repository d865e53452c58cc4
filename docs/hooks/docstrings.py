"""Read ``Example:`` in docstrings as Google style's ``Examples:``, so that sessions are shown as code."""

from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Change docstrings before they are parsed."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rename the section if the object has one."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
