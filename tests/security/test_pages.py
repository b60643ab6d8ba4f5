"""Hostile text on the HTML pages, in a real Chromium: every text is shown, and none is run or read as a template."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest import page as backtest_page
from simulator.report.page import render
from simulator.report.template import as_json, render_page
from tests.support.browser import Browser, browser
from tests.support.report_pages import FAILED, NASTY, UP, execution, report

RUN = "document.title='run'"
CORPUS = (
    NASTY,
    f'{{{{data}}}}<img src=x onerror="{RUN}">',
    "{{title}}{{ policy }}{% raw %}{{ 7 * 7 }}{# x #}",
    "<!--<script>",
    "<!--<script></script><!--",
    f"]]><svg onload={RUN}>",
    f'"><script>{RUN}</script>',
    f"' onfocus={RUN} autofocus '",
    f"javascript:{RUN}",
    "${alert(1)}`\\u003cscript\\u003e",
    "\u2028\u2029\x00\ud7ff\ufeff\u202e",
    f'<base href="http://evil.example/"><meta http-equiv="refresh" content="0;url=data:text/html,{RUN}">',
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe><style>*{{display:none}}</style>",
    "</title></style></textarea></noscript></template>",
)
ENTRANCES = """
const foreign = 'main img, iframe, base, main script, [onfocus], [onerror], svg[onload]';
return [document.querySelectorAll(foreign).length, document.title];
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("desk")) as session:
        yield session


def test_the_report_shows_every_hostile_text_and_runs_none(desk: Browser, tmp_path: Path) -> None:
    runs = [execution(number, UP, reason=text) for number, text in enumerate(CORPUS)]
    runs.append(execution(len(CORPUS), FAILED, status="FAILED"))
    for text in CORPUS:
        subject = replace(report(), executions=runs, title="page", sentence=text, subtitle=text, figures={text: text})
        page = tmp_path / "page.html"
        page.write_text(render(subject), encoding="utf-8")
        desk.open(page)
        assert desk.run(ENTRANCES) == [0, "page"]
        shown = text.replace("\x00", "")  # HTML has no such character
        lead, figure = desk.run("return [...document.querySelectorAll('.lead, .figure b')].map(e => e.textContent)")
        assert (lead, figure) == (shown, shown)
    reasons = desk.run("return [...document.querySelectorAll('#rows .why')].map(e => e.textContent)")
    assert set(CORPUS) <= set(reasons)
    assert desk.complaints() == []


def test_the_policy_of_a_page_stops_a_script_that_is_not_its_own(desk: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    foreign = f"<img src=x onerror={RUN}><script>{RUN}</script>"
    page.write_text(render(replace(report(), title="page")).replace("<main>", "<main>" + foreign), encoding="utf-8")
    desk.open(page)
    assert desk.run("return document.title") == "page"
    assert any("Content Security Policy" in complaint for complaint in desk.complaints())


@pytest.mark.parametrize("template", ["simulator/report/page.html", backtest_page.TEMPLATE], ids=["report", "study"])
def test_every_page_has_a_policy_and_its_values_are_outside_of_its_scripts(template: str) -> None:
    text = Path(template).read_text(encoding="utf-8") if template.endswith(".html") else template
    assert 'http-equiv="Content-Security-Policy" content="{{ policy }}"' in text
    assert not any("{{" in script for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL))
    assert not re.search(r"\son[a-z]+=|javascript:|\|\s*safe", text)


@given(st.text(max_size=80), st.sampled_from(CORPUS))
@settings(deadline=None)
def test_a_value_is_rendered_once_and_escaped_in_text_attributes_and_json(text: str, hostile: str) -> None:
    template = '<p title="{{ a }}">{{ a }}</p><script type="application/json">{{ b }}</script><script>1</script>'
    page = render_page(template, a=text + hostile, b=as_json({hostile: text}))
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count("<") == 6 and page.count("{{ 7 * 7 }}") == (3 if "7 * 7" in hostile else 0)
