'use strict';
const at = id => document.getElementById(id);
const token = new URLSearchParams(location.search).get('token') ?? '';
const page = crypto.getRandomValues(new Uint32Array(1))[0];
const WAIT = 150, quiet = {...options, displayModeBar: false};
let start, trace, turn = 0, running, timer, last;
let changed = {}, model = {}, chosen = {};

class Refused extends Error {}

const unanswered = () => new Refused(
  'the server of this page does not answer: start it again, and open the address that it prints');

async function ask(path, body, signal) {
  const headers = {'X-Node-Fleet-Token': token};
  let reply;
  try {
    reply = await fetch(path, {method: body === undefined ? 'GET' : 'POST', headers, body, signal});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw unanswered();
  }
  if (reply.ok) return reply;
  throw new Refused((await reply.json()).error);
}

function show(error) {
  if (error && error.name === 'AbortError') return;
  at('error').textContent = error ? error.message : '';
  at('error').hidden = !error;
  if (!error) return;
  at('progress').classList.add('idle');
  document.documentElement.dataset.state = 'refused';
  if (!(error instanceof Refused)) throw error;
}

function made(name, values = {}, ...children) {
  const element = Object.assign(document.createElement(name), values);
  element.append(...children);
  return element;
}

function control(one) {
  const name = one.name, box = made('div', {className: 'control'});
  box.dataset.strategy = one.strategy;
  box.dataset.name = name;
  box.append(made('label', {htmlFor: name, textContent: one.label}));
  const set = value => { changed[name] = value; soon(); };
  if (one.choices.length) {
    const select = made('select', {id: name}, ...one.choices.map(value => made('option', {value, textContent: value})));
    select.addEventListener('change', () => {
      if (name === 'preset') for (const other of start.controls) if (other.is_rule) delete changed[other.name];
      set(select.value);
    });
    box.append(select);
  } else if (!one.step) {
    const text = made('input', {id: name, spellcheck: false, autocomplete: 'off'});
    text.addEventListener('change', () => set(text.value));
    box.append(text);
  } else {
    const number = made('input', {id: name, type: 'number', min: one.low, max: one.high, step: 'any'});
    const slider = made('input', {type: 'range', min: one.low, max: one.most, step: one.step, tabIndex: -1});
    slider.setAttribute('aria-hidden', 'true');
    number.addEventListener('input', () => {
      slider.value = number.value;
      if (number.value !== '') set(Number(number.value));
    });
    number.addEventListener('change', () => { if (number.value === '' && last) number.value = last.values[name]; });
    number.addEventListener('keydown', event => {
      const way = {ArrowUp: 1, ArrowDown: -1}[event.key];
      if (!way) return;
      event.preventDefault();
      number.value = Math.min(one.high, Math.max(one.low, Number(number.value) + way * one.step));
      number.dispatchEvent(new Event('input'));
    });
    slider.addEventListener('input', () => { number.value = slider.value; set(Number(slider.value)); });
    box.append(made('div', {className: 'pair'}, slider, number));
  }
  return box;
}

function put(values, strategy, changes) {
  for (const box of document.querySelectorAll('.control')) {
    const name = box.dataset.name, input = at(name), slider = box.querySelector('[type=range]');
    if (document.activeElement !== input) input.value = values[name];
    if (slider && document.activeElement !== slider) slider.value = values[name];
    box.hidden = Boolean(box.dataset.strategy) && box.dataset.strategy !== strategy && !(name in changes);
    box.classList.toggle('changed', name in changes);
  }
}

function modelled(one) {
  const input = made('input', {id: `model-${one.name}`, type: 'number', min: one.low, max: one.high, step: 'any'});
  input.value = one.value;
  input.addEventListener('input', () => {
    if (input.value === '') delete model[one.name]; else model[one.name] = Number(input.value);
    soon();
  });
  return made('div', {}, made('label', {htmlFor: input.id, textContent: one.label}), input);
}

function use(found) {
  trace = found;
  at('trace').textContent = `${found.name}: ${found.days} days, ${found.readings} readings`;
  const options = [[0, `all ${found.days} days`]];
  for (const days of [30, start.shown_days]) if (found.days > days) options.push([days, `the last ${days} days`]);
  at('days').replaceChildren(...options.map(([value, textContent]) => made('option', {value, textContent})));
  at('days').value = options.at(-1)[0];
  soon();
}

async function load(file) {
  try {
    at('trace').textContent = `reading ${file.name} …`;
    if (file.size > start.most_bytes) throw new Refused(start.too_large);
    use(await (await ask(`/trace?name=${encodeURIComponent(file.name)}`, file)).json());
  } catch (error) { kept(); show(error); }
  at('file').value = '';  // or the browser does not report that the same file is chosen again
}

function kept() {
  at('trace').textContent = `${trace.name}: ${trace.days} days, ${trace.readings} readings`;
}

async function readPrometheus() {
  const asked = Object.fromEntries(['url', 'query', 'past', 'step'].map(name => [name, at(name).value]));
  at('read').disabled = true;
  at('trace').textContent = `reading ${asked.query} …`;
  try {
    use(await (await ask('/prometheus', JSON.stringify(asked))).json());
  } catch (error) { kept(); show(error); }
  at('read').disabled = false;
}

function soon() {
  turn += 1;  // an answer to the settings before must not replace these
  clearTimeout(timer);
  timer = setTimeout(() => study().catch(show), WAIT);
}

async function* lines(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const {value, done} = await reader.read().catch(error => {
      throw error.name === 'AbortError' ? error : unanswered();
    });
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

async function study() {
  running?.abort();
  running = new AbortController();
  const mine = ++turn, days = Number(at('days').value);
  at('progress').classList.remove('idle');
  at('progress').removeAttribute('value');
  document.documentElement.dataset.state = 'replaying';
  const body = JSON.stringify({trace: trace.number, days, changed, model, page, turn: mine});
  for await (const part of lines(await ask('/study', body, running.signal))) {
    if (mine !== turn || part.superseded) return;
    if (part.error) throw new Refused(part.error);
    if (part.values) take(part);
    if (part.share !== undefined) at('progress').value = part.share;
    if (part.rows) draw(part);
  }
  at('progress').classList.add('idle');
  document.documentElement.dataset.state = 'complete';
}

function take(part) {
  show(null);
  last = part;
  changed = {...part.changes};
  put(part.values, part.strategy, part.changes);
  const names = Object.keys(part.changes);
  at('changes').textContent = names.length
    ? `Changed: ${names.map(name => `${name}=${part.changes[name]}`).join(', ')}.`
    : `These are the settings of ${start.file}.`;
  at('settings').textContent = `"settings": ${part.settings}`;
  at('difference').textContent = part.difference;
  at('differs').hidden = !part.difference;
  at('write').hidden = !start.may_write || !part.difference;
  at('done').textContent = '';
}

function swatch(place) {
  const [colour, dash] = start.looks[place];
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  for (const [name, value] of Object.entries({width: 26, height: 10, 'aria-hidden': 'true'})) svg.setAttribute(name, value);
  const look = {x1: 0, y1: 5, x2: 26, y2: 5, stroke: colour, 'stroke-width': 3};
  if (dash !== 'solid') look['stroke-dasharray'] = dash === 'dash' ? '7 3' : '2 3';
  for (const [name, value] of Object.entries(look)) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

function draw(part) {
  at('answer').textContent = `${part.answer}.`;
  at('assumed').textContent = part.assumed;
  const own = part.policies[0], isShown = name => chosen[name] ?? (name === own || name === part.best);
  const focused = document.activeElement?.id;
  at('rows').replaceChildren(...part.rows.map(([name, ...cells], place) => {
    const isBound = place === part.rows.length - 1, box = made('input', {type: 'checkbox', id: `show-${name}`});
    box.checked = isShown(name);
    box.addEventListener('change', () => { chosen[name] = box.checked; time(part, isShown); });
    const head = isBound ? name : made('label', {htmlFor: box.id}, box, swatch(place), name);
    const row = made('tr', {className: place ? '' : 'own'}, made('th', {scope: 'row'}, head));
    row.append(...cells.map(textContent => made('td', {textContent})));
    return row;
  }));
  if (focused?.startsWith('show-')) at(focused)?.focus();
  for (const one of part.charts.time.data) one.x = part.times[one.x];
  time(part, isShown);
  const {data, layout} = part.charts.map;
  const place = new Set(part.policies);
  for (const one of data) one.showlegend = !place.has(one.name);
  Plotly.react('map', data, styled({...layout, showlegend: false}), quiet);
}

function time(part, isShown) {
  const {data, layout} = part.charts.time;
  for (const one of data) one.visible = one.name === start.need || isShown(one.legendgroup);
  const shown = styled({...structuredClone(layout), showlegend: false, uirevision: trace.number});
  Plotly.react('time', data, shown, quiet);
  time.again = () => time(part, isShown);
  document.documentElement.dataset.drawn = 'yes';
}

async function copy() {
  const text = at('settings').textContent;
  try {
    await navigator.clipboard.writeText(text);
    at('done').textContent = 'copied';
  } catch {
    getSelection().selectAllChildren(at('settings'));
    at('done').textContent = 'the browser does not allow it: the text is selected, copy it with Ctrl+C';
  }
}

async function write() {
  try {
    const body = JSON.stringify({changed: last.changes, digest: last.digest});
    await ask('/write', body);
    await study();
    at('done').textContent = `written into ${start.path}; the next deployment uses it`;
  } catch (error) {
    await study().catch(() => {});
    show(error);
  }
}

async function begin() {
  start = await (await ask('/start')).json();
  at('cluster').textContent = start.cluster;
  for (const one of document.querySelectorAll('.file')) one.textContent = start.file;
  at('path').textContent = start.path;
  at('controls').append(...start.controls.map(control));
  at('model').append(...start.model.map(modelled));
  at('columns').append(...start.columns.map(textContent => made('th', {scope: 'col', textContent})));
  at('units').append(...start.units.flatMap(([name, text]) => [made('dt', {textContent: name}), made('dd', {textContent: text})]));
  at('checked').textContent = start.checked;
  at('url').value = start.prometheus_url;
  if (start.prometheus_url) at('url').closest('details').open = true;
  use(start.trace);
}

at('form').addEventListener('submit', event => event.preventDefault());
at('file').addEventListener('change', () => at('file').files[0] && load(at('file').files[0]));
at('days').addEventListener('change', soon);
at('read').addEventListener('click', readPrometheus);
at('reset').addEventListener('click', () => { changed = {}; document.activeElement.blur(); soon(); });
at('copy').addEventListener('click', copy);
at('write').addEventListener('click', write);
dark.addEventListener('change', () => { time.again?.(); Plotly.relayout('map', styled({...at('map').layout})); });
addEventListener('dragover', event => { event.preventDefault(); document.body.classList.add('dropping'); });
addEventListener('dragleave', () => document.body.classList.remove('dropping'));
addEventListener('drop', event => {
  event.preventDefault();
  document.body.classList.remove('dropping');
  if (event.dataTransfer.files[0]) load(event.dataTransfer.files[0]);
});
begin().catch(show);
