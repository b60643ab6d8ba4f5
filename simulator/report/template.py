"""Renders the HTML pages: one pass of a template library that escapes every value.

A page is opened from a file and shows names that users of the cluster chose. Its Content-Security-Policy names the hash
of each script of the template, loads nothing, and sends nothing anywhere.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from typing import Any

from jinja2 import Environment, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_SHARED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render_page(template: str, *, trusted: tuple[str, ...] = (), **values: Any) -> str:
    """The page, with its Content-Security-Policy as `{{ policy }}`. Values are escaped unless they are Markup.

    The scripts of a template contain no values, since their hashes are those of its text: as_json() writes data into an
    element that is not run. trusted: the texts of scripts that the page's own script adds, such as a library that the
    page carries compressed.
    """
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in (*_SCRIPT.findall(template), *trusted))
    return str(_compiled(template).render(policy=f"{_SHARED}; script-src {hashes}", **values))


def as_json(value: Any) -> Markup:
    """JSON for a script element of type application/json, which no text in it can end."""
    return htmlsafe_json_dumps(value, dumps=functools.partial(json.dumps, separators=(",", ":")))


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@functools.lru_cache(maxsize=4)
def _compiled(template: str) -> Any:
    protected = _SCRIPT.sub(lambda found: "<script>{% raw %}" + found[1] + "{% endraw %}</script>", template)
    return Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(protected)
