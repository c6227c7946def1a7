// The table as `peers` says it, asked for every second and after each transition that `events` tells.
// Everything that comes from the table is set as text, never as markup.
"use strict";

const EVERY = 1000; // ms
const AT_MOST_EVERY = 100;
const PATIENCE = 5000;
const LOGGED = 100;
const PHASES = ["ready", "connecting", "failed", "idle", "removing"];

const at = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const clock = (ms) => new Date(ms).toTimeString().slice(0, 8);

function element(name, kind, ...inside) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...inside);
  return made;
}

function seconds(number) {
  if (number < 0.0995) return `${(number * 1000).toFixed(number < 0.00995 ? 1 : 0)} ms`;
  if (number < 120) return `${number.toFixed(1)} s`;
  if (number < 7200) return `${Math.floor(number / 60)} min`;
  return number < 172800 ? `${Math.floor(number / 3600)} h` : `${Math.floor(number / 86400)} d`;
}

const reason = (of) => of.reason.replaceAll("_", " ") + (of.native_code === null ? "" : ` (code ${of.native_code})`);

// What is there

/** By name and id: two peers have one name while the former leaves. */
const rows = new Map();

function row(peer) {
  const key = `${peer.id} ${peer.name}`;
  if (!rows.has(key)) rows.set(key, new Row(peer.name));
  return [key, rows.get(key)];
}

class Row {
  static made = 0;

  constructor(name) {
    this.line = element("tr");
    this.past = element("tr", "past");
    this.past.id = `past-${Row.made++}`;
    this.past.hidden = true;
    this.past.append(element("td"));
    this.past.firstChild.colSpan = 11;

    const head = element("th", "", name);
    head.scope = "row";
    this.cells = ["", "number", "address", "reason", "number", "number", "number", "number", "number"].map((kind) => element("td", kind));
    this.button = element("button", "history");
    this.button.type = "button";
    this.button.setAttribute("aria-controls", this.past.id);
    this.button.addEventListener("click", () => this.open(this.past.hidden));
    this.open(false);
    this.line.append(head, ...this.cells, element("td", "", this.button));
  }

  open(wanted) {
    this.past.hidden = !wanted;
    this.button.setAttribute("aria-expanded", wanted);
  }

  show(peer) {
    const record = peer.record ?? { address: "", failures: 0 };
    const values = [
      [phase(peer.phase), ...notes(peer, record)],
      [String(peer.generation)],
      [record.address],
      why(peer, record),
      [count(record.failures, peer.phase !== "ready")],
      [count(peer.leases), older(peer.draining)],
      [count(peer.transfers), older(peer.stalled)],
      [count(peer.grants)],
      [count(peer.quarantined + peer.quarantined_grants), peer.quarantined_bytes ? note(bytes(peer.quarantined_bytes)) : ""],
    ];
    values.forEach((value, i) => this.cells[i].replaceChildren(...value));

    const name = peer.name;
    this.button.setAttribute("aria-label", `History of ${name}, ${peer.history.length} transitions`);
    this.button.title = `The last ${peer.history.length} transitions`;
    this.button.replaceChildren(...peer.history.map((was) => element("span", was.phase)));
    if (!this.past.hidden) this.past.firstChild.replaceChildren(history(peer.history));
  }
}

const phase = (word) => element("span", `phase ${PHASES.includes(word) ? word : ""}`, word);
const note = (text) => element("span", "note", text);
const count = (number, alarm = false) => element("span", number === 0 ? "zero" : alarm ? "alarm" : "", String(number));
const older = (number) => (number ? ` (${number})` : "");
const bytes = (number) => (number < 1 << 20 ? `${Math.ceil(number / 1024)} KiB` : `${(number / (1 << 20)).toFixed(1)} MiB`);

function notes(peer, record) {
  const words = [];
  if (peer.suspect) words.push(peer.stalled ? "suspect: a transfer stands still" : "suspect: it does not answer");
  if (record.breaker_open) words.push("breaker open");
  if (record.group) words.push(`of ${record.group}`);
  return words.map(note);
}

/** Why it stands there and since when; of one that is well, what became of it last. */
function why(peer, record) {
  if (!record.reason) return ["changing"];
  const lines = [`${reason(record)}, for ${seconds(record.age_seconds)}`];
  const failed = peer.history.findLast((was) => was.phase === "failed");
  if (peer.phase !== "ready" && record.last_error) lines.push(note(record.last_error));
  if (peer.phase === "ready" && failed) lines.push(note(`before: ${reason(failed)}, ${seconds(failed.age_seconds)} ago`));
  if (peer.phase === "failed" && record.retry_in_seconds > 0) lines.push(note(`next try in ${seconds(record.retry_in_seconds)}`));
  return lines;
}

function history(past) {
  const line = (cell, words) => element("tr", "", ...words.map((word) => element(cell, "", word)));
  const told = past.map((was) =>
    line("td", [`${seconds(was.age_seconds)} ago`, phase(was.phase), `generation ${was.generation}`, reason(was), after(was)]),
  );
  return element("table", "", element("tbody", "", ...told.reverse()));
}

const after = (was) => (was.before ? `after ${seconds(was.lasted_seconds)} ${was.before}` : "");

function show(table) {
  const by_name = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true });
  const shown = table.peers.sort(by_name).map((peer) => {
    const [key, here] = row(peer);
    here.show(peer);
    return [key, here];
  });
  const keys = new Set(shown.map(([key]) => key));
  for (const [key, { line, past }] of rows) {
    if (keys.has(key)) continue;
    line.remove();
    past.remove();
    rows.delete(key);
  }
  // What stands where it should is not moved: it may have the focus.
  shown.flatMap(([, here]) => [here.line, here.past]).forEach((line, i) => {
    if (at("peers").children[i] !== line) at("peers").insertBefore(line, at("peers").children[i] ?? null);
  });

  const many = (word) => table.peers.filter((peer) => peer.phase === word).length;
  at("phases").replaceChildren(...PHASES.map((word) => element("li", "", phase(word), ` ${many(word)}`)));
  const totals = [
    ["Elections won", table.elections],
    ["Reports", table.reports],
    ["Late reports", table.stale_reports],
    ["Stuck connects", table.stuck_connects, true],
    ["Stuck closes", table.stuck_closes, true],
    ["Leaked connections", table.leaked, true],
    ["In quarantine", bytes(table.quarantined_bytes)],
  ];
  const total = ([title, value, alarm]) => element("div", "", element("dt", "", title), element("dd", alarm && value ? "alarm" : "", String(value)));
  at("totals").replaceChildren(...totals.map(total));
}

// Whether the server answers

let answered = null;

/** Said once, not at every answer: it is read aloud. */
function server(state, text) {
  if (document.body.dataset.server === state) return;
  document.body.dataset.server = state;
  at("server").textContent = text;
}

async function ask() {
  const answer = await fetch("peers", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

let wake = () => {};

async function watch() {
  for (;;) {
    const news = new Promise((done) => (wake = done));
    const table = await ask().catch(() => null);
    if (table) {
      answered = Date.now();
      show(table);
      server("live", "Live");
    } else {
      const since = answered ? `What is shown is of ${clock(answered)}. ` : "";
      server("gone", `The server does not answer. ${since}Trying again…`);
    }
    await sleep(AT_MOST_EVERY);
    await Promise.race([news, sleep(EVERY - AT_MOST_EVERY)]);
  }
}

// What happens

function log(age, ...words) {
  const time = element("time", "", clock(Date.now() - age * 1000));
  at("log").querySelector(".none")?.remove();
  at("log").prepend(element("li", "", time, ...words));
  while (at("log").children.length > LOGGED) at("log").lastChild.remove();
}

function heard(event) {
  if (event.missed) log(0, element("span", "alarm", `${event.missed} transitions were missed: this page was too slow.`));
  if (event.changed) {
    const { name, transition: is } = event.changed;
    const why = is.reason === is.phase ? "" : reason(is);
    log(is.age_seconds, `${name} `, phase(is.phase), ` ${[`generation ${is.generation}`, why, after(is)].filter(Boolean).join(", ")}`);
  }
  wake();
}

/** The browser connects again by itself after a loss, but not after an answer that is an error. */
function listen() {
  const events = new EventSource("events");
  events.onmessage = (message) => heard(JSON.parse(message.data));
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, EVERY);
  };
}

watch().catch((error) => {
  server("gone", `This page has failed, and what it shows is old: ${error}`);
  throw error;
});
listen();
