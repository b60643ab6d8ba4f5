"""Reads the JSON files that people write: cdk.json and cdk.context.json. A mistake is one sentence with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def configuration_file() -> Path:
    """The cdk.json of the folder in which the command runs, else the one beside the sources."""
    here = Path.cwd() / "cdk.json"
    return here if here.exists() else ROOT / "cdk.json"


class JsonFileError(ValueError):
    """The file cannot be read, or is not JSON. The text names the file, and the line and column of a mistake."""


def read_json(path: Path) -> Any:
    """The content of the file.

    Raises:
        JsonFileError: it is missing, unreadable, not UTF-8 or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise JsonFileError(f"{path}, line {error.lineno}, column {error.colno}: {_in_words(error)}") from error
    except UnicodeDecodeError as error:
        text = f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}; save it as UTF-8"
        raise JsonFileError(text) from error
    except OSError as error:
        raise JsonFileError(f"{path} cannot be read: {error.strerror}") from error


def _in_words(error: json.JSONDecodeError) -> str:
    """The parser's message with what is there instead. The place of a trailing comma is that of the next token."""
    found = error.doc[error.pos : error.pos + 1]
    return f"not JSON: {error.msg}, found {found!r}" if found.strip() else f"not JSON: {error.msg}"
