"""The report in a real Chromium: it renders without a complaint, on a phone, in the dark, and by keyboard alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.explain import execution_report
from simulator.report.page import Report, render
from tests.support.browser import PHONE, Browser, browser
from tests.support.report_pages import FAILED, NASTY, QUIET, UP, execution, report

PNG = b"\x89PNG"
LEVELS = r"""
const channel = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const level = colour => {
  const [r, g, b] = colour.match(/[\d.]+/g).map(v => channel(v / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const behind = e => {
  for (; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!/rgba\(.*, 0/.test(colour) && colour !== 'transparent') return colour;
  }
  return 'rgb(255,255,255)';
};
"""
CONTRASTS = (
    LEVELS
    + """
const looked = ['h1', '.sub', '.figure b', '.figure span', '.chart .now', '#rows li:last-child .why', '#rows .up',
  '#quiet', 'summary time'];
return looked.map(selector => {
  const e = document.querySelector(selector), a = level(getComputedStyle(e).color), b = level(behind(e));
  return [selector, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
});
"""
)
CONTRAST_OF_LINES = (
    LEVELS
    + """
const e = document.querySelector('SELECTOR'), a = level(getComputedStyle(e).stroke), b = level(behind(e));
return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
"""
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("desk")) as session:
        yield session


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("phone"), phone=True) as session:
        yield session


def shown(session: Browser, folder: Path, subject: Report | None = None) -> Browser:
    page = folder / "page.html"
    page.write_text(render(subject or report()), encoding="utf-8")
    session.open(page)
    return session


def test_it_renders_answer_first_and_the_console_is_silent(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path)
    assert desk.run("return document.querySelector('h1').textContent") == "A <test> & more"
    assert desk.run("return [...document.querySelectorAll('.figure b')].map(e => e.textContent)") == ["2 → 5 → 2", "3"]
    assert desk.run("return document.querySelectorAll('#charts .chart').length") == 3
    assert desk.run("return document.querySelectorAll('#rows li').length") == 3
    assert desk.screenshot().startswith(PNG)
    assert desk.complaints() == []


def test_the_path_of_the_chosen_execution_is_lit_and_only_that(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path)
    lit = "return [...document.querySelectorAll('.graph-box:not([hidden]) .state.on')].map(e => e.dataset.state)"
    assert set(desk.run(lit)) == set(UP)
    edges = "return [...document.querySelectorAll('.edge.on')].map(e => e.dataset.edge)"
    assert set(desk.run(edges)) == {f"{a}>{b}" for a, b in itertools.pairwise(UP)}
    desk.run("document.querySelectorAll('#rows li')[2].click()")
    assert set(desk.run(lit)) == set(FAILED)
    assert "LaunchNodes>FailScaleUp" in desk.run(edges)
    style = "return getComputedStyle(document.querySelector('[data-edge=\"LaunchNodes>FailScaleUp\"]')).display"
    assert desk.run(style) != "none", "a failure's way is drawn when it was taken"


def test_each_states_input_and_output_are_one_click_away(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path)
    desk.run(
        "document.querySelector('.state.on[data-state=Decide]').dispatchEvent(new Event('click', {bubbles: true}))"
    )
    names = "return [...document.querySelectorAll('#steps details[open] pre')].map(e => e.dataset.name)"
    assert desk.run("return document.querySelectorAll('#steps details[open]').length") == 1
    assert desk.run(f"return new Promise(done => setTimeout(() => done((() => {{{names}}})()), 50))") == [
        "what this state changed",
        "input",
        "output",
    ]
    assert '"step": 3' in desk.run("return document.querySelector('#steps pre[data-name=input]').textContent")
    assert desk.complaints() == []


def test_hostile_text_is_shown_and_never_run(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path)
    assert desk.run("return document.querySelectorAll('#rows li')[1].querySelector('.why').textContent") == NASTY
    assert desk.run("return document.title") == "A <test> & more"
    assert desk.run("return document.querySelectorAll('main img').length") == 0


def test_the_keyboard_alone_reaches_every_execution_and_its_payloads(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path)
    desk.run("document.querySelector('#rows li').focus()")
    desk.press("ArrowDown", "ArrowDown")
    assert desk.run("return document.activeElement.getAttribute('aria-selected')") == "true"
    assert "run-2" in desk.run("return document.getElementById('chosen').textContent")
    desk.press("Enter")
    assert desk.run("return document.activeElement.id") == "chosen"
    for _ in range(4 + len(FAILED)):
        desk.press("Tab")
        if desk.run("return document.activeElement.dataset.state || ''") == "LaunchNodes":
            break
    desk.press("Enter")
    assert desk.run("return document.querySelector('#steps details[open]').dataset.step") == "LaunchNodes"
    assert desk.complaints() == []


def test_the_arrow_keys_move_through_the_timeline(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path)
    desk.run("document.getElementById('charts').focus()")
    desk.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert desk.run("return document.querySelector('.chart .now').textContent") == "08:01  load 120"


def test_a_phone_shows_all_of_it_without_scrolling_sideways(phone: Browser, tmp_path: Path) -> None:
    shown(phone, tmp_path)
    assert phone.run("return window.innerWidth") == PHONE["width"]
    assert phone.run("return document.documentElement.scrollWidth") <= PHONE["width"]
    assert phone.run("return Math.min(...[...document.querySelectorAll('#rows .why')].map(e => e.clientWidth))") > 280
    assert phone.run("return document.querySelector('.graph-scroll').scrollWidth") > PHONE["width"], (
        "the graph stays legible"
    )
    assert phone.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_in_the_light_and_in_the_dark(desk: Browser, tmp_path: Path, dark: bool) -> None:
    desk.dark(dark)
    shown(desk, tmp_path)
    for selector, ratio in desk.run(CONTRASTS):
        assert ratio >= 4.5, selector
    background = desk.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in background[4:-1].split(",")) < 200) is dark
    desk.dark(False)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", ["desk", "phone"])
def test_axe_finds_nothing_in_the_page_with_everything_open(
    width: str, dark: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    session: Browser = request.getfixturevalue(width)
    session.dark(dark)
    shown(session, tmp_path)
    session.run("document.getElementById('failures').click()")
    session.run("document.querySelectorAll('#steps details').forEach(one => one.open = true)")
    session.run("return new Promise(done => requestAnimationFrame(done)).then(() => 1)")
    assert session.violations() == []
    session.dark(False)


def test_every_visit_of_a_state_is_chosen_in_turn(desk: Browser, tmp_path: Path) -> None:
    looped = (*UP[:7], *("WaitForJoin", "CheckJoin", "JoinStatus") * 3, *UP[10:])
    shown(desk, tmp_path, report(executions=(execution(0, looped),)))
    state = "document.querySelector('.state[data-state=CheckJoin]')"
    assert desk.run(f"return {state}.getAttribute('aria-label')") == "CheckJoin, 3 visits"
    opened = (
        "return [...document.querySelectorAll('#steps details')].map((d, i) => d.open ? i : -1).filter(i => i >= 0)"
    )
    places = [index for index, name in enumerate(looped) if name == "CheckJoin"]
    for place in (*places, places[0]):
        desk.run(f"{state}.dispatchEvent(new MouseEvent('click'))")
        assert desk.run(opened) == [place]
    assert desk.run(f"return {state}.getAttribute('aria-label')") == "CheckJoin, visit 1 of 3"


def test_a_visit_shows_what_the_state_changed(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path)
    desk.run("document.querySelectorAll('#steps details')[3].open = true")
    desk.run("return new Promise(done => setTimeout(done, 50))")
    lines = "document.querySelectorAll('#steps details')[3].querySelectorAll('.diff span')"
    changes = desk.run(f"return [...{lines}].map(s => s.textContent)")
    assert changes == ["- step: 3", "+ step: 4"]


def test_arrows_have_heads_and_a_failure_has_contrast_when_it_is_shown(desk: Browser, tmp_path: Path) -> None:
    for dark in (False, True):
        desk.dark(dark)
        shown(desk, tmp_path)
        desk.run("document.getElementById('failures').click()")
        heads = desk.run("return [...document.querySelectorAll('.edge')].map(e => getComputedStyle(e).markerEnd)")
        assert all("#arrow" in head for head in heads)
        for selector in (".edge.catch", ".edge.next"):
            ratio = desk.run(CONTRAST_OF_LINES.replace("SELECTOR", selector))
            assert ratio >= 3, (selector, dark)
    desk.dark(False)


def test_waiting_has_the_colour_that_its_legend_says(desk: Browser, tmp_path: Path) -> None:
    for dark in (False, True):
        desk.dark(dark)
        shown(desk, tmp_path)
        colours = "const of = s => getComputedStyle(document.querySelector(s)).backgroundColor;"
        assert desk.run(f"{colours} return of('#strip .wait') === of('#span .wait')")
        assert desk.run(f"{colours} return of('#strip .wait') !== of('#strip span:not(.wait)')")
        assert "waiting" in desk.run("return document.getElementById('span').textContent")
    desk.dark(False)


def test_the_page_of_one_execution_shows_its_way_at_once(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path, execution_report(execution(4, UP)))
    assert desk.run("return document.getElementById('timeline').hidden && document.getElementById('list').hidden")
    assert "run-4" in desk.run("return document.getElementById('chosen').textContent")
    assert desk.run("return document.querySelectorAll('#steps details').length") == len(UP)
    assert desk.complaints() == []


def test_a_report_without_any_execution_is_still_a_page(desk: Browser, tmp_path: Path) -> None:
    shown(desk, tmp_path, report(executions=()))
    assert desk.run("return document.getElementById('chosen').textContent") == "There is no execution"
    assert desk.complaints() == []


def test_runs_that_changed_nothing_are_one_row_for_each_reason_and_open_like_any_other(
    desk: Browser, tmp_path: Path
) -> None:
    quiet = [
        execution(number, QUIET, action="none", reason="no worker is eligible: a is a Job pod") for number in (1, 2)
    ]
    shown(desk, tmp_path, report(executions=(execution(0, UP), *quiet)))
    rows = desk.run("return [...document.querySelectorAll('#rows li')].map(li => li.querySelector('.act').textContent)")
    assert rows == ["+1", "none, 2 runs"]
    assert desk.run("return document.getElementById('quiet').hidden") is False
    desk.run("document.querySelectorAll('#rows li')[1].click()")
    chosen = desk.run("return document.getElementById('chosen').textContent")
    assert chosen.startswith("Path of run-2: none")
    assert desk.run("return document.querySelectorAll('#steps details').length") == len(QUIET)
    assert desk.complaints() == []
