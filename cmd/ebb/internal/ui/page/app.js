'use strict';
// The page of `ebb ui`. Bytes of the store reach the document as text nodes only.

const $ = (id) => document.getElementById(id);
const views = [
  ['families', 'Families', showFamilies], ['rows', 'Rows', showRows], ['expiry', 'Expiry', showExpiry],
  ['pages', 'Pages', showPages], ['trees', 'Trees', showTrees], ['log', 'Log', showLog],
  ['history', 'History', showHistory],
];
// The token comes behind # and stays in the storage of this origin, which has the port in it.
const given = location.hash.match(/^#token=([\w-]+)(.*)$/);
if (given) {
  localStorage.setItem('token', given[1]);
  history.replaceState(null, '', location.pathname + given[2]);
}
let store = null; // the last answer of api/store
let skew = 0; // clock of the server minus that of the browser
let drawn = 0; // number of the view that is being drawn: answers for an earlier one are dropped
let form = 'text'; // how bytes are shown
let timer = 0; // of a view that asks again

// el makes an element. Attributes that begin with "on" are listeners; children are nodes or text.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children.flat(3).filter((c) => c != null && c !== ''));
  return e;
}

async function api(call, query) {
  const answer = await fetch('api/' + call + '?' + new URLSearchParams(query || {}), { headers: { Authorization: 'Bearer ' + localStorage.getItem('token') } })
    .catch(() => { throw new Error('There is no answer: ebb ui has ended.'); });
  if (answer.status === 401) throw new Error('This page has no token, or that of an earlier run: open the address that ebb ui has printed.');
  const text = await answer.text();
  let json;
  try { json = JSON.parse(text); } catch { throw new Error(text); }
  if (!answer.ok) throw new Error(json.error || text);
  return json;
}

// Bytes.
const decode = (b64) => Uint8Array.from(atob(b64 || ''), (c) => c.charCodeAt(0));
const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
const utf8 = new TextDecoder('utf-8', { fatal: true });
function text(bytes, lines) {
  try {
    return utf8.decode(bytes).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) =>
      lines && (c === '\n' || c === '\t') ? c : c === '\n' ? '\\n' : c === '\t' ? '\\t' : c === '\r' ? '\\r' : '\\u{' + c.codePointAt(0).toString(16) + '}');
  } catch {
    return Array.from(bytes, (b) => b > 31 && b < 127 ? String.fromCharCode(b) : '\\x' + b.toString(16).padStart(2, '0')).join('');
  }
}
const shown = (b64) => form === 'hex' ? hex(decode(b64)) : text(decode(b64)); // JSON.parse would round numbers
function dump(bytes, from) {
  const lines = [];
  for (let i = 0; i < bytes.length; i += 16) {
    const part = bytes.slice(i, i + 16);
    const digits = Array.from(part, (b) => b.toString(16).padStart(2, '0')).join(' ');
    const chars = Array.from(part, (b) => b > 31 && b < 127 ? String.fromCharCode(b) : '.').join('');
    lines.push((from + i).toString(16).padStart(8, '0') + '  ' + digits.padEnd(48) + ' ' + chars);
  }
  return lines.join('\n');
}

// Numbers.
const count = (n) => Number(n).toLocaleString('en');
const many = (n, one) => count(n) + ' ' + one + (n === 1 ? '' : 's');
function size(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < 4; i++) n /= 1024;
  return (i ? n.toFixed(1) : n) + ' ' + units[i];
}
function duration(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + s % 60 + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}
const now = () => Date.now() + skew;
const instant = (ms) => Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString().replace('T', ' ').replace('.000Z', 'Z') : ms + ' ms';
const left = (at) => at > now() ? 'in ' + duration(at - now()) : 'expired';
const expiry = (at) => at ? el('span', { 'data-at': at, title: instant(at) }, left(at)) : 'never';
setInterval(() => {
  for (const e of document.querySelectorAll('[data-at]')) e.textContent = left(Number(e.dataset.at));
}, 1000);

// Parts of views.
const table = (heads, rows, kind) => el('div', { class: 'scroll' }, el('table', { class: kind },
  el('thead', {}, el('tr', {}, heads.map((h) => el('th', h.startsWith('#') ? { class: 'n', scope: 'col' } : { scope: 'col' }, h.replace('#', ''))))),
  el('tbody', {}, rows)));
const cell = (...c) => el('td', {}, ...c);
const num = (...c) => el('td', { class: 'n' }, ...c);
const pairs = (list) => el('dl', {}, list.filter((p) => p[1] != null && p[1] !== '').map(([k, v]) => [el('dt', {}, k), el('dd', {}, v)]));
const note = (t) => el('p', { class: 'note' }, t);
const error = (t) => el('p', { class: 'error', role: 'alert' }, t);
const card = (title, ...c) => el('section', { class: 'card' }, el('h2', {}, title), ...c);
const link = (label, fn) => el('button', { class: 'link', type: 'button', onclick: fn }, label);
function choice(label, options, value, fn) {
  const s = el('select', { onchange: () => fn(s.value) }, options.map(([v, name]) => el('option', { value: v, selected: v === value }, name || v)));
  return el('label', {}, label, s);
}
const forms = (fn) => choice('Show as', [['text', 'text'], ['hex', 'hex'], ['json', 'JSON']], form, (v) => { form = v; fn(); });
function families(fn, value) {
  return choice('Family', store.families.map((f) => [f.name, text(new TextEncoder().encode(f.name))]), value, fn);
}
const familyOf = (args) => args.get('family') || (store.families.find((f) => f.name === 'default' && f.rows > 0) || store.families.find((f) => f.rows > 0) || { name: 'default' }).name;
function detail(title, ...body) {
  $('detail-title').replaceChildren(title);
  $('detail-body').replaceChildren(...body);
  if (!$('detail').open) $('detail').showModal();
}
const pageLink = (id) => link(count(id), () => showPage(id));

// Views: the address behind # is view?arguments.
function place() {
  const [name, query] = location.hash.slice(1).split('?');
  return [views.find((v) => v[0] === name) || views[0], new URLSearchParams(query || '')];
}
function go(view, args) { location.hash = view + '?' + new URLSearchParams(args || {}); }

async function draw(fresh) {
  const mine = ++drawn;
  clearTimeout(timer);
  const [view, args] = place();
  $('tabs').replaceChildren(...views.map(([name, label]) =>
    el('a', { href: '#' + name, 'aria-current': name === view[0] ? 'page' : null }, label)));
  try {
    if (!store || fresh) {
      const answer = await api('store', fresh ? { fresh: 1 } : {});
      store = answer;
      skew = store.now - Date.now();
    }
    head();
    const body = await view[2](args, () => mine === drawn);
    if (mine === drawn && body) $('main').replaceChildren(...body.flat(Infinity).filter(Boolean));
  } catch (e) {
    if (mine === drawn) $('main').replaceChildren(error(e.message));
  }
}

function head() {
  $('path').textContent = store.path;
  document.title = store.path.split(/[\\/]/).pop() + ' · Ebb';
  const parts = [size(store.file_bytes), 'as of ' + new Date(store.at).toLocaleTimeString()];
  if (store.checkpoint) parts.splice(1, 0, 'checkpoint ' + count(store.checkpoint));
  if (store.stats) parts.splice(2, 0, 'commit ' + count(store.stats.seq));
  if (store.holder) parts.push(store.holder + ' has it open');
  $('status').replaceChildren(parts.join(' · '));
  const w = store.walk;
  if (store.error || w.found) $('status').append(' · ', el('strong', { class: 'badtext' }, store.error ? 'cannot be opened' : 'damaged'));
}

function damage() {
  const w = store.walk, all = [];
  if (store.error) all.push(error('The store cannot be opened: ' + store.error + '. Pages and trees are shown as far as they prove; ebb salvage makes a new store of what can be read.'));
  if (w.found) {
    all.push(el('div', { class: 'error', role: 'alert' }, el('p', {}, many(w.found, 'finding') + ' in the trees:'),
      el('ul', {}, w.findings.slice(0, 20).map((f) => el('li', {}, f.tree + ', page ', pageLink(f.page), ': ' + f.detail))),
      el('p', {}, 'Large values are verified where the map of pages shows them.'), w.found > 20 ? el('p', {}, 'ebb check lists all of them.') : null));
  }
  return all;
}

// again asks for the store until the walk of the trees is done.
function again(still) {
  if (store.walk.done) return;
  timer = setTimeout(async () => {
    if (!still()) return;
    try { store = await api('store'); } catch { return; }
    if (still()) draw();
  }, 700);
}

async function showFamilies(_, still) {
  const trees = await api('trees');
  again(still);
  const bytes = {};
  for (const t of trees.trees) {
    const pages = t.extent_pages + t.levels.reduce((n, l) => n + l.pages, 0);
    bytes[t.family] = (bytes[t.family] || 0) + pages * trees.page_size;
  }
  if (store.error) return [damage()];
  return [damage(), store.families.length === 0 ? note('The store has no family yet.') : null,
    table(['Family', '#rows', '#live', '#with expiry', '#expired', '#size', 'next expiry', 'settings'], store.families.map((f) => el('tr', {},
      el('td', { class: 'bytes' }, link(text(new TextEncoder().encode(f.name)), () => go('rows', { family: f.name }))),
      num(count(f.rows)), num(count(f.rows - f.due)), num(f.ttl_rows ? link(count(f.ttl_rows), () => go('expiry', { family: f.name })) : '0'),
      num(count(f.due)), num(!bytes[f.name] && f.rows ? 'in the log' : size(bytes[f.name] || 0) + (trees.done ? '' : ' +')), cell(expiry(f.next_expiry)),
      cell(f.error ? el('span', { class: 'badtext' }, f.error) : [f.default_ttl_ms ? 'ttl ' + duration(f.default_ttl_ms) : '', f.retention_ms ? 'retention ' + duration(f.retention_ms) : ''].join(' ').trim() || 'none')))),
    el('p', { class: 'quiet' }, 'Rows are stored rows: expired ones, too, until a purge deletes them. Sizes are those of pages at the last checkpoint.'),
    store.holder ? note('Another process has the store open. What you see is one instant of it; Refresh reads a later one.') : null];
}

function bytesOf(input, asHex) {
  if (!asHex) return hex(new TextEncoder().encode(input));
  const digits = input.replace(/^0x/, '').replace(/\s/g, '').toLowerCase();
  return digits.slice(0, digits.length - digits.length % 2).replace(/[^0-9a-f]/g, '');
}

async function showRows(args) {
  if (store.error) return [damage()];
  const family = familyOf(args), asHex = args.get('as') === 'hex';
  const settings = store.families.find((f) => f.name === family) || {};
  const search = el('input', { type: 'search', id: 'search', value: args.get('prefix') || '', spellcheck: 'false', autocomplete: 'off',
    placeholder: asHex ? 'first bytes of the key in hex' : 'first characters of the key', 'aria-keyshortcuts': '/' });
  const body = el('tbody', {}), more = el('button', { type: 'button' }, 'More rows'), state = el('p', { class: 'quiet', role: 'status' });
  let loaded = [], last = null, round = 0;
  const paint = (list) => body.append(...list.map((r) => rowOf(family, r)));
  async function load(next) {
    const mine = ++round;
    const query = { family, prefix: bytesOf(search.value, asHex) };
    if (next) Object.assign(query, { after: hex(decode(last.after)) }, settings.partitioned ? { after_time: last.after_time } : {});
    try {
      const answer = await api('rows', query);
      if (mine !== round) return;
      if (!next) { loaded = []; body.replaceChildren(); }
      last = answer;
      loaded.push(...answer.rows);
      paint(answer.rows);
      more.hidden = !answer.more;
      const rows = loaded.filter((r) => !r.missing).length;
      state.textContent = loaded.length === 0 ? 'No row' + (search.value ? ' begins with this.' : '.') : many(rows, 'row') + (answer.more ? ' so far.' : ', that is all.');
    } catch (e) { if (mine === round) { state.replaceChildren(error(e.message)); more.hidden = true; } }
  }
  search.addEventListener('input', () => {
    const at = new URLSearchParams({ family, prefix: search.value, as: asHex ? 'hex' : 'text' });
    history.replaceState(null, '', '#rows?' + at);
    load();
  });
  more.addEventListener('click', () => load(true));
  await load();
  return [el('div', { class: 'bar' }, families((f) => go('rows', { family: f }), family),
    el('label', { class: 'grow' }, 'Prefix', search),
    choice('in', [['text', 'text'], ['hex', 'hex']], asHex ? 'hex' : 'text', (v) => go('rows', { family, as: v })),
    forms(() => { body.replaceChildren(); paint(loaded); })),
  el('table', { class: 'rows' }, el('thead', {}, el('tr', {}, settings.partitioned ? el('th', { scope: 'col' }, 'time') : null,
    el('th', { scope: 'col' }, 'key'), el('th', { scope: 'col' }, 'value'), el('th', { class: 'n', scope: 'col' }, 'size'), el('th', { class: 'n', scope: 'col' }, settings.partitioned ? '' : 'expires'))), body),
  state, more];
}

function rowOf(family, r) {
  if (r.missing) return el('tr', { class: 'gap' }, el('td', { colspan: 5 }, 'Up to ' + many(r.missing.rows, 'row') + ' cannot be read here: ' + r.missing.error));
  const value = r.lost ? el('span', { class: 'badtext' }, r.lost)
    : r.unread ? el('span', { class: 'quiet' }, 'large: open it to see it') : shown(r.value) + (decode(r.value).length < r.size ? ' …' : '');
  return el('tr', {}, r.time != null ? el('td', { class: 'n' }, instant(r.time)) : null,
    el('td', { class: 'bytes key' }, link(shown(r.key), () => showValue(family, r, 0))), el('td', { class: 'bytes' }, value),
    num(size(r.size)), el('td', { class: 'n' }, r.time != null ? '' : expiry(r.expiry)));
}

async function showValue(family, r, offset) {
  const title = text(decode(r.key));
  try {
    const query = { family, key: hex(decode(r.key)), offset };
    if (r.time != null) query.time = r.time;
    const v = await api('value', query), bytes = decode(v.value), end = offset + bytes.length;
    const part = bytes.length < v.size ? 'bytes ' + count(offset) + ' to ' + count(end) + ' of ' + count(v.size) : many(v.size, 'byte');
    const show = form === 'hex' ? el('pre', { class: 'hex', tabindex: 0 }, dump(bytes, offset))
      : el('pre', { tabindex: 0 }, form === 'json' && v.json ? v.json : text(bytes, true));
    detail(title, pairs([['family', family], ['key in hex', el('code', {}, hex(decode(r.key)))], ['value', part],
      r.time != null ? ['time', instant(r.time)] : ['expires', r.expiry ? el('span', {}, expiry(r.expiry), ', ' + instant(r.expiry)) : 'never']]),
    el('div', { class: 'bar' }, forms(() => showValue(family, r, offset)),
      offset > 0 ? el('button', { type: 'button', onclick: () => showValue(family, r, Math.max(0, offset - 65536)) }, 'Back') : null,
      end < v.size ? el('button', { type: 'button', onclick: () => showValue(family, r, end) }, 'Next 64 KiB') : null),
    form === 'json' && !v.json ? note('This value is no JSON, or a large one.') : '', show);
  } catch (e) { detail(title, error(e.message)); }
}

async function showExpiry(args, still) {
  if (store.error) return [damage()];
  const family = args.get('family') || (store.families.find((f) => f.ttl_rows > 0) || { name: familyOf(args) }).name;
  const a = await api('expiry', { family });
  timer = setTimeout(() => { if (still() && !document.hidden) draw(); }, 10000);
  const chart = (title, bins) => {
    const most = Math.max(1, ...bins.map((b) => b.keys)), sum = bins.reduce((n, b) => n + b.keys, 0);
    return card(title + ': ' + many(sum, 'key'), el('div', { class: 'bars', role: 'img', 'aria-label': many(sum, 'key') + ' expire: ' + title.toLowerCase() }, bins.map((b) => {
      const bar = el('div', { class: b.keys ? 'some' : null, title: many(b.keys, 'key') + ' in ' + duration(b.from - a.now) + ' to ' + duration(b.to - a.now) });
      bar.style.height = 100 * b.keys / most + '%';
      return bar;
    })), el('div', { class: 'axis' }, el('span', {}, 'now'), el('span', {}, 'highest bar ' + count(most === 1 && !sum ? 0 : most)), el('span', {}, '+' + duration(bins.at(-1).to - a.now))));
  };
  return [el('div', { class: 'bar' }, families((f) => go('expiry', { family: f }), family), forms(() => draw())),
    a.due ? note(many(a.due, 'key') + ' expired and not deleted yet: reads hide them, a purge deletes them.') : null,
    el('div', { class: 'cards' }, chart('Next minute', a.minute), chart('Next hour', a.hour), chart('Next day', a.day)),
    el('h2', {}, 'Next to expire'), a.soon.length ? table(['key', 'expires', 'at'], a.soon.map((k) => el('tr', {},
      el('td', { class: 'bytes' }, shown(k.key)), cell(expiry(k.at)), cell(instant(k.at))))) : el('p', { class: 'quiet' }, 'No key of this family expires within a year.')];
}

// The map of pages. Each page is a square; arrow keys move, Enter opens.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const kinds = { leaf: '--k-leaf', branch: '--k-branch', overflow: '--k-overflow', 'overflow, continued': '--k-more', meta: '--k-meta', 'free map': '--k-free-map', 'free directory': '--k-free-map' };
const kindNames = [['--k-leaf', 'leaf: rows'], ['--k-branch', 'branch'], ['--k-overflow', 'large value'], ['--k-more', 'its other pages'], ['--k-meta', 'meta'], ['--k-free-map', 'free map']];
const scale = (share) => 'hsl(205 65% ' + Math.round(css('--bg') === '#fff' ? 90 - 60 * share : 20 + 60 * share) + '%)';

function colours(by, pages, names) {
  const births = [...new Set(pages.filter((p) => p.birth).map((p) => p.birth))].sort((a, b) => a - b);
  const hues = [...new Set(names)].filter(Boolean);
  const hue = (name) => 'hsl(' + Math.round(hues.indexOf(name) * 360 / hues.length + 205) % 360 + ' 50% 55%)';
  const of = (p) => {
    if (p.state === 'bad') return css('--bad');
    if (p.state === 'free') return css('--free');
    if (p.state === 'unknown' && (p.kind === '-' || by === 'family')) return css('--unknown');
    if (by === 'family') return names[p.tree] ? hue(names[p.tree]) : css('--other');
    if (by === 'fill') return p.fill < 0 ? css('--other') : scale(p.fill / 100);
    if (by === 'birth') return p.birth ? scale(births.length > 1 ? births.indexOf(p.birth) / (births.length - 1) : 1) : css('--other');
    return css(kinds[p.kind] || '--other');
  };
  const legend = by === 'family' ? hues.map((n) => [hue(n), n]).concat([[css('--other'), 'none']])
    : by === 'fill' ? [0, .5, 1].map((s) => [scale(s), s * 100 + '% full']).concat([[css('--other'), 'no rows']])
      : by === 'birth' ? births.length ? [[scale(births.length > 1 ? 0 : 1), 'checkpoint ' + births[0]], [scale(1), 'checkpoint ' + births.at(-1)]] : []
        : kindNames.map(([v, n]) => [css(v), n]);
  return [of, legend.slice(0, 24).concat([[css('--free'), 'free'], [css('--bad'), 'bad'], [css('--unknown'), 'unknown']])];
}

function about(p, names) {
  const what = p.state === 'free' ? 'free' : p.kind + (p.kind === 'branch' ? ' of level ' + p.level : '');
  return ['page ' + count(p.pgid), what, p.state === 'bad' ? 'BAD: ' + p.detail : p.state === 'unknown' ? 'use unknown' : '',
    names[p.tree] || '', p.fill >= 0 && p.state !== 'free' ? many(p.count, p.kind === 'leaf' ? 'row' : 'child').replace('childs', 'children') + ', ' + p.fill + '% full' : '',
    p.birth && p.state !== 'free' ? 'of checkpoint ' + count(p.birth) : ''].filter(Boolean).join(' · ');
}

async function showPages(args, still) {
  const by = args.get('by') || 'kind', per = 2048, from = Math.max(0, Number(args.get('from')) || 0);
  const [map, trees] = await Promise.all([api('pages', { from, n: per }), api('trees')]);
  again(still);
  map.pages.forEach((p, i) => { if (i && p.kind === 'overflow, continued') p.birth = map.pages[i - 1].birth; });
  const pages = map.pages, names = trees.trees.map((t) => t.family || t.role);
  const [colour, legend] = colours(by, pages, names);
  const canvas = el('canvas', { tabindex: 0, role: 'img', id: 'map', 'aria-label': 'Map of the pages: arrow keys move, Enter opens a page', 'aria-describedby': 'about' });
  const line = el('p', { id: 'about', role: 'status', class: 'mono' }, 'Arrow keys or the mouse choose a page, Enter or a click opens it.');
  let at = Math.min(Math.max(0, Number(args.get('at') || from) - from), Math.max(0, pages.length - 1)), columns = 1, side = 14;
  const paint = () => {
    const width = canvas.clientWidth || 300, ratio = devicePixelRatio || 1;
    side = Math.max(12, Math.min(22, Math.floor(Math.sqrt(width * 480 / Math.max(1, pages.length)))));
    columns = Math.max(1, Math.floor(width / side));
    const height = Math.ceil(pages.length / columns) * side;
    canvas.style.height = height + 'px';
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const c = canvas.getContext('2d');
    c.scale(ratio, ratio);
    pages.forEach((p, i) => {
      c.fillStyle = colour(p);
      c.fillRect(i % columns * side, Math.floor(i / columns) * side, side - 1.5, side - 1.5);
    });
    c.strokeStyle = css('--text');
    c.lineWidth = 2;
    c.strokeRect(at % columns * side + .5, Math.floor(at / columns) * side + .5, side - 2.5, side - 2.5);
  };
  const choose = (i) => {
    if (i < 0 || i >= pages.length) return;
    at = i;
    paint();
    line.textContent = about(pages[i], names);
  };
  const jump = (start) => go('pages', { by, from: Math.max(0, start) });
  const under = (e) => Math.floor(e.offsetY / side) * columns + Math.min(columns - 1, Math.floor(e.offsetX / side));
  canvas.addEventListener('mousemove', (e) => choose(under(e)));
  canvas.addEventListener('click', (e) => { choose(under(e)); if (pages[at]) showPage(pages[at].pgid); });
  canvas.addEventListener('keydown', (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -at, End: pages.length - 1 - at }[e.key];
    if (step !== undefined) choose(at + step);
    else if (e.key === 'Enter' || e.key === ' ') showPage(pages[at].pgid);
    else if (e.key === 'PageDown' && from + per < map.all) jump(from + per);
    else if (e.key === 'PageUp' && from > 0) jump(from - per);
    else return;
    e.preventDefault();
  });
  new ResizeObserver(paint).observe(canvas);
  if (args.has('open')) showPage(Number(args.get('open')));
  const number = el('input', { type: 'number', min: 0, max: map.all - 1, value: from, 'aria-label': 'first page' });
  number.addEventListener('change', () => jump(Number(number.value)));
  const bad = pages.filter((p) => p.state === 'bad').length, free = pages.filter((p) => p.state === 'free').length;
  return [damage(), el('div', { class: 'bar' }, choice('Colour by', [['kind'], ['family'], ['fill'], ['birth', 'checkpoint of birth']], by, (v) => go('pages', { by: v, from })),
    el('label', {}, 'From page', number), el('button', { type: 'button', disabled: from === 0, onclick: () => jump(from - per) }, 'Previous'),
    el('button', { type: 'button', disabled: from + per >= map.all, onclick: () => jump(from + per) }, 'Next')),
  el('p', { class: 'quiet' }, 'Pages ' + count(from) + ' to ' + count(from + pages.length - 1) + ' of ' + count(map.all) + ', ' + size(map.page_size) + ' each; ' + free + ' free' + (bad ? ', ' + bad + ' bad' : '') +
    (map.cut_bytes ? '; the file ends inside a page' : '') + (trees.done ? '.' : '. The trees are still being read: families are not complete.')),
  line, canvas, el('ul', { class: 'legend' }, legend.map(([c, n]) => { const i = el('i'); i.style.background = c; return el('li', {}, i, n); }))];
}

async function showPage(id) {
  const title = 'Page ' + count(id);
  try {
    const a = await api('page', { id }), p = a.page;
    const body = [p.detail ? error(p.detail) : null, pairs([['kind', p.kind], ['state', p.state === 'used' ? 'in use, proves' : p.state], ['tree', a.tree],
      ['checkpoint of birth', p.birth || null], ['level', p.kind === 'branch' ? p.level : null],
      ['full', p.fill >= 0 ? p.fill + '%' : null], ['entries', p.fill >= 0 ? count(p.count) : null], ['value', a.value_size != null ? size(a.value_size) : null]])];
    if (a.meta) body.push(metaList(a.meta));
    if (a.entries) body.push(el('h2', {}, a.entries.length < p.count ? 'The first ' + a.entries.length + ' entries' : 'Entries'), p.kind === 'branch'
      ? table(['#page', 'keys from', '#rows below'], a.entries.map((e) => el('tr', {}, num(pageLink(e.child)), el('td', { class: 'bytes' }, shown(e.key)), num(count(e.rows)))))
      : table(['key', 'value', '#size', 'expires'], a.entries.map((e) => el('tr', {}, el('td', { class: 'bytes' }, shown(e.key) + (decode(e.key).length < e.key_size ? ' …' : '')),
        el('td', { class: 'bytes' }, e.large ? el('span', { class: 'quiet' }, 'in pages of its own') : shown(e.value) + (decode(e.value).length < e.size ? ' …' : '')), num(size(e.size)), cell(e.expiry > 0 ? expiry(e.expiry) : ''))), 'rows'));
    const raw = el('details', { open: !a.entries && !a.meta }, el('summary', {}, 'Bytes'), el('pre', { class: 'hex', tabindex: 0 }, dump(decode(a.bytes), id * store.page_size)));
    detail(title, ...body.filter(Boolean), raw);
  } catch (e) { detail(title, error(e.message)); }
}

async function showTrees(_, still) {
  const a = await api('trees');
  again(still);
  const usable = a.page_size - 32;
  return [damage(), a.done ? null : el('p', { class: 'quiet' }, 'The trees are being read: ' + many(store.walk.pages_read, 'page') + ' so far.'),
    a.trees.length < a.all ? note('The first ' + a.trees.length + ' of ' + a.all + ' trees.') : null,
    el('div', { class: 'cards' }, a.trees.map((t) => card((t.family ? text(new TextEncoder().encode(t.family)) + ', ' : '') + t.role + (t.family || !t.id ? '' : ' ' + t.id),
      pairs([['rows', count(t.rows)], ['levels', t.depth], ['root', t.root ? pageLink(t.root) : 'none: it is empty'], ['large values', t.extents ? count(t.extents) + ', ' + size(t.extent_bytes) + ' in ' + many(t.extent_pages, 'page') : null]]),
      t.levels.length ? table(['level', '#pages', '#entries', 'full'], t.levels.map((l, i) => {
        const full = l.pages ? Math.min(100, Math.round(100 * l.used_bytes / l.pages / usable)) : 0, bar = el('i');
        bar.style.width = full + '%';
        return el('tr', {}, cell(i === t.levels.length - 1 ? 'root' : i ? String(i) : 'leaves'), num(count(l.pages)), num(count(l.entries)), cell(el('span', { class: 'meter' }, bar), l.pages ? full + '%' : ''));
      }).reverse()) : '')))];
}

async function showLog() {
  const a = await api('log');
  return [a.error ? error(a.error) : null,
    el('p', {}, a.segments.length ? 'Replay begins at LSN ' + count(a.start) + ', behind checkpoint ' + count(a.checkpoint) + '. Segments have up to ' + size(a.segment_size) + '.'
      : a.clean ? 'There is no log: the store was closed, and checkpoint ' + count(a.checkpoint) + ' has all of it.' : 'There are no segments.'),
    a.segments.length ? [el('h2', {}, 'Segments'), table(['#number', '#size', '#follows checkpoint', 'salt', 'file'], a.segments.map((s) =>
      el('tr', {}, num(count(s.number)), num(size(s.bytes)), num(count(s.follows)), cell(el('code', {}, s.salt)), el('td', { class: 'bytes' }, s.file))))] : null,
    (a.foreign || []).map((f) => note(f + ' is no segment of this store, or damaged')),
    a.commits ? [el('h2', {}, 'Commits behind the checkpoint'), a.commits.length ? [el('p', { class: 'quiet' }, a.more ? 'The first ' + a.commits.length + '.' : many(a.commits.length, 'commit') + (a.torn_bytes ? ', and a torn end of ' + size(a.torn_bytes) : '') + '.'),
      table(['#LSN', '#bytes'], a.commits.map((c) => el('tr', {}, num(count(c.lsn)), num(count(c.bytes)))), 'slim')] : el('p', { class: 'quiet' }, 'None.')] : null];
}

function metaList(m) {
  if (!m.valid) return el('p', { class: 'quiet' }, 'Not valid. A new store has one meta page until its first checkpoint.');
  return pairs([['checkpoint', count(m.checkpoint)], ['last commit', count(m.seq)], ['needs the log', m.clean ? 'no' : 'yes, from LSN ' + count(m.log_start)],
    ['pages', count(m.pages)], ['newest instant seen', m.clock_mark ? instant(m.clock_mark) : null], ['backups', m.backups.length ? m.backups.join(', ') : null]]);
}

async function showHistory(_, still) {
  const a = await api('trees'), r = store.recovery;
  again(still);
  const most = Math.max(1, ...a.births.map((b) => b.pages));
  const plain = (o) => pairs(Object.entries(o).filter(([, v]) => typeof v !== 'object').map(([k, v]) => [k.replace(/_ns$/, '').replaceAll('_', ' '),
    k.endsWith('_bytes') || k.startsWith('bytes_') ? size(v) : typeof v === 'number' ? count(v) : String(v)]));
  return [damage(), el('div', { class: 'cards' }, store.metas.map((m) => card('Meta page ' + m.slot, metaList(m))),
    r ? card('Recovery by this page', el('p', {}, r.clean ? 'The store was closed: nothing to replay.' : many(r.commits_replayed, 'commit') + ' replayed behind checkpoint ' + count(r.meta_epoch) + ', in memory.'), plain(r)) : null,
    card('Pages by checkpoint of birth', el('p', { class: 'quiet' }, 'How many pages of each checkpoint are still in use, the newest first' + (a.done ? '.' : ', as far as the trees were read.')),
      table(['#checkpoint', '#pages', ''], a.births.map((b) => {
        const bar = el('i');
        bar.style.width = 100 * b.pages / most + '%';
        return el('tr', {}, num(count(b.checkpoint)), num(count(b.pages)), cell(el('span', { class: 'meter' }, bar)));
      }))),
    store.stats ? card('Numbers', plain(store.stats)) : null)];
}

document.addEventListener('keydown', (e) => {
  const typing = e.target.matches('input, select, textarea');
  if (e.ctrlKey || e.metaKey || e.altKey || typing || $('detail').open) return;
  if (e.key === '/') {
    e.preventDefault();
    if ($('search')) $('search').focus();
    else { location.hash = 'rows'; addEventListener('drawn', () => $('search') && $('search').focus(), { once: true }); }
  } else if (e.key === 'r') draw(true);
});
$('refresh').addEventListener('click', () => draw(true));
$('detail-close').addEventListener('click', () => $('detail').close());
addEventListener('hashchange', () => draw().then(() => dispatchEvent(new Event('drawn'))));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw());
draw();
