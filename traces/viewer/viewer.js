// The trace viewer: one ES module without a build step, for the notebook widget, the collector's page and static HTML.
// It owns reading Jaeger's v1 trace JSON, laying it out and drawing it; where traces come from is the host's affair.
// Whatever comes from a trace reaches the page as text nodes only: this file never parses a string as HTML.

const ROW_HEIGHT = 28; // px; viewer.css uses the same through --rtv-row
const CARD_HEIGHT = 68; // px of one row of the trace list
const OVERSCAN = 10; // rows drawn beyond each edge, so that a fast scroll shows no gap
const SKEW_TOLERANCE = 1; // us; Jaeger's JSON rounds to whole microseconds
const MIN_ZOOM = 1e-5; // part of the trace that fills the view at most; below, a microsecond is wider than the screen
const MAX_INDENT = 18; // levels; deeper ones stay at this indent and show their depth as a number
const MARKS_PER_ROW = 120; // event ticks and critical sections drawn in one row; more cannot be told apart
const TABLE_PAGE = 300; // table rows drawn before "show all"
const SERVICE_COLOURS = 12; // --rtv-c0 to --rtv-c11 in viewer.css
const TICK_WIDTH = 64; // px; a tick nearer to the right end has its label on the left
const MIN_NAME_WIDTH = 260; // px; below, names of our spans are cut
const TOAST_MS = 3500;
const RECORDS_IN_DETAIL = 20; // all of them are among the attributes and events anyway
const RECORD_CHIPS = 3; // record chips shown in a header before "+n"
const LOOKBACKS = [
  ["5m", "Last 5 minutes", 300],
  ["1h", "Last hour", 3600],
  ["6h", "Last 6 hours", 21600],
  ["24h", "Last 24 hours", 86400],
  ["7d", "Last 7 days", 604800],
  ["all", "All time", 0],
];
const SEARCH_DEFAULTS = {
  service: "",
  operation: "",
  tags: "",
  min: "",
  max: "",
  lookback: "1h",
  limit: "100",
  errors: false,
};

// ---- reading -------------------------------------------------------------------------------------------------------

/** A trace that cannot be shown. `message` says what is wrong and where, `hint` what to do next. */
export class TraceError extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

const FORMAT_HINT = 'Expected Jaeger\'s JSON: {"data": [trace, ...]}, one trace, or a list of traces.';

/** The raw traces in any of Jaeger's JSON forms: {"data": [...]}, a bare trace, or a list of traces. */
export function readTraces(json) {
  const list = Array.isArray(json) ? json : Array.isArray(json?.data) ? json.data : [json];
  list.forEach((trace, index) => {
    const where = list.length > 1 ? `trace ${index + 1} of ${list.length}` : "the trace";
    if (trace === null || typeof trace !== "object") throw new TraceError(`${where} is not an object.`, FORMAT_HINT);
    if (!Array.isArray(trace.spans)) throw new TraceError(`${where} has no list of spans.`, FORMAT_HINT);
    const bad = trace.spans.findIndex((span) => span === null || typeof span !== "object" || !span.spanID);
    if (bad >= 0) throw new TraceError(`span ${bad + 1} of ${where} has no spanID.`, FORMAT_HINT);
  });
  return list;
}

const normalId = (id) =>
  String(id ?? "")
    .toLowerCase()
    .replace(/^0+(?=.)/, "");
const pairs = (list) => (Array.isArray(list) ? list.filter((tag) => tag && typeof tag === "object") : []);
const tagValue = (tags, key) => tags.find((tag) => tag.key === key)?.value;
const isTrue = (value) => value === true || value === "true";

function readSpan(raw, processes, traceId) {
  const tags = pairs(raw.tags);
  const process = processes[raw.processID] ?? raw.process ?? {};
  const refs = pairs(raw.references);
  const own = (ref) => !ref.traceID || normalId(ref.traceID) === traceId;
  const parentRef = refs.find((ref) => ref.refType === "CHILD_OF" && own(ref));
  const warnings = pairs(raw.warnings?.map?.((text) => ({text}))).map((item) => String(item.text));
  let start = Number(raw.startTime ?? NaN);
  let duration = Number(raw.duration ?? NaN);
  if (!(start > 0)) {
    start = NaN;
    warnings.push("has no start time; drawn at the start of the trace");
  }
  if (!(duration >= 0)) {
    warnings.push(duration < 0 ? "ends before it starts; drawn with no duration" : "has no duration");
    duration = 0;
  }
  return {
    raw,
    tags,
    refs,
    warnings,
    start,
    duration,
    id: String(raw.spanID),
    key: String(raw.spanID),
    parentId: parentRef ? String(parentRef.spanID) : raw.parentSpanID ? String(raw.parentSpanID) : null,
    links: refs.filter((ref) => ref !== parentRef),
    op: String(raw.operationName || "(no name)"),
    service: String(process.serviceName || "(unknown service)"),
    processId: String(raw.processID ?? ""),
    processTags: pairs(process.tags),
    logs: pairs(raw.logs).map((log) => ({time: Number(log.timestamp), fields: pairs(log.fields)})),
    kind: String(tagValue(tags, "span.kind") ?? ""),
    error: isTrue(tagValue(tags, "error")) || tagValue(tags, "otel.status_code") === "ERROR",
    children: [],
    parent: null,
    depth: 0,
    size: 0,
    self: 0,
    skew: 0,
    missing: false,
    critical: [],
  };
}

function missingSpan(id) {
  return {
    raw: null,
    tags: [],
    refs: [],
    links: [],
    logs: [],
    processTags: [],
    start: NaN,
    duration: 0,
    id,
    key: `missing:${id}`,
    parentId: null,
    op: "Missing parent span",
    service: "",
    processId: "",
    kind: "",
    error: false,
    children: [],
    parent: null,
    depth: 0,
    size: 0,
    self: 0,
    skew: 0,
    missing: true,
    critical: [],
    warnings: [
      `Span ${id} is named as a parent but is not in this trace. It may still be on its way, ` +
        "may have been dropped, or was never sampled. Reload the trace to look again.",
    ],
  };
}

/** Spans with different content under one id are all kept; exact copies (a resent batch) are dropped and counted. */
function readSpans(raw, traceId) {
  const processes = raw.processes ?? {};
  const byId = new Map();
  const spans = [];
  let copies = 0;
  for (const rawSpan of raw.spans) {
    const span = readSpan(rawSpan, processes, traceId);
    const twin = byId.get(span.id);
    if (
      twin &&
      twin.op === span.op &&
      twin.service === span.service &&
      Object.is(twin.start, span.start) &&
      twin.duration === span.duration
    ) {
      copies += 1;
      continue;
    }
    if (twin) {
      span.key = `${span.id}#${spans.length}`;
      span.warnings.push("Another span of this trace has the same id; children are shown under the first.");
    } else {
      byId.set(span.id, span);
    }
    spans.push(span);
  }
  return {spans, byId, copies};
}

function link(spans, byId) {
  const roots = [];
  const missing = new Map();
  for (const span of spans) {
    let parent = span.parentId === null ? null : byId.get(span.parentId);
    if (!parent && span.parentId === null) {
      const follows = span.links.find((ref) => ref.refType === "FOLLOWS_FROM" && byId.has(String(ref.spanID)));
      parent = follows ? byId.get(String(follows.spanID)) : null;
    }
    if (parent === span) parent = null;
    if (!parent && span.parentId !== null && span.parentId !== span.id) {
      if (!missing.has(span.parentId)) missing.set(span.parentId, missingSpan(span.parentId));
      parent = missing.get(span.parentId);
    }
    span.parent = parent ?? null;
    if (parent) parent.children.push(span);
    else roots.push(span);
  }
  roots.push(...missing.values());
  cutCircles(spans, roots);
  return {roots, missing: [...missing.values()]};
}

/** Spans whose parents form a circle hang from no root: cut each circle at its earliest span. */
function cutCircles(spans, roots) {
  const seen = new Set();
  const visit = (root) => {
    const stack = [root];
    while (stack.length) {
      const span = stack.pop();
      if (seen.has(span)) continue;
      seen.add(span);
      for (const child of span.children) stack.push(child);
    }
  };
  roots.forEach(visit);
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (seen.has(span)) continue;
    span.parent.children = span.parent.children.filter((child) => child !== span);
    span.parent = null;
    span.warnings.push("Its parents form a circle; shown as a root.");
    roots.push(span);
    visit(span);
  }
}

/** The clock shift of each process, by how far its spans start before their callers' in processes already placed. */
function clockShifts(spans) {
  const edges = spans.filter((span) => span.parent && !span.parent.missing && span.parent.processId !== span.processId);
  const shifts = new Map();
  const roots = spans.filter((span) => !span.parent);
  for (const span of roots.length ? roots : spans.slice(0, 1)) shifts.set(span.processId, 0);
  let pending = edges;
  while (pending.length) {
    const ready = pending.filter((span) => shifts.has(span.parent.processId) && !shifts.has(span.processId));
    if (!ready.length) break;
    const process = ready[0].processId;
    const late = ready
      .filter((span) => span.processId === process)
      .map((span) => span.parent.start + shifts.get(span.parent.processId) - span.start);
    shifts.set(
      process,
      late.reduce((most, value) => Math.max(most, value), 0),
    );
    pending = pending.filter((span) => span.processId !== process);
  }
  return shifts;
}

function place(spans, missing, adjust) {
  let first = Infinity;
  for (const span of spans) if (span.start < first) first = span.start;
  if (!Number.isFinite(first)) first = 0;
  for (const span of spans) if (Number.isNaN(span.start)) span.start = first;
  let skewed = 0;
  for (const span of spans) {
    if (!span.parent || span.parent.missing) continue;
    span.skew = span.parent.start - span.start;
    if (span.skew <= SKEW_TOLERANCE) {
      span.skew = 0;
      continue;
    }
    skewed += 1;
    const cause =
      span.processId === span.parent.processId
        ? ""
        : `: the clocks of ${span.service} and ` + `${span.parent.service} differ`;
    span.warnings.push(`Starts ${duration(span.skew)} before its parent${cause}.`);
  }
  if (adjust) {
    const shifts = clockShifts(spans);
    for (const span of spans) span.start += shifts.get(span.processId) ?? 0;
  }
  for (const span of missing) {
    span.start = span.children.reduce((low, child) => Math.min(low, child.start), Infinity);
    span.duration = span.children.reduce((high, child) => Math.max(high, child.start + child.duration), 0) - span.start;
  }
  return skewed;
}

/** Depth-first order without recursion (a trace may be one chain of 10,000 spans), with depth and subtree size. */
function flatten(roots) {
  const byStart = (a, b) => a.start - b.start;
  const order = [];
  const stack = roots.sort(byStart).toReversed();
  while (stack.length) {
    const span = stack.pop();
    span.depth = span.parent ? span.parent.depth + 1 : 0;
    span.index = order.length;
    order.push(span);
    span.children.sort(byStart);
    for (let i = span.children.length - 1; i >= 0; i -= 1) stack.push(span.children[i]);
  }
  for (let i = order.length - 1; i >= 0; i -= 1) if (order[i].parent) order[i].parent.size += order[i].size + 1;
  return order;
}

function selfTime(span) {
  const end = span.start + span.duration;
  let covered = 0;
  let reach = span.start;
  for (const child of span.children) {
    const from = Math.max(reach, child.start);
    const to = Math.min(end, child.start + child.duration);
    if (to > from) {
      covered += to - from;
      reach = to;
    }
  }
  return span.duration - covered;
}

/** `reach`: when the last span below has ended, which is after the span itself if it did not wait for its children. */
function setReach(order) {
  for (const span of order) span.reach = span.start + span.duration;
  for (let i = order.length - 1; i >= 0; i -= 1) {
    const {parent, reach} = order[i];
    if (parent) parent.reach = Math.max(parent.reach, reach);
  }
}

/**
 * Walk back from the end of the trace: at each moment the critical span is the child that finished last before it.
 * After a span's own end only children that outlive it count (our connect span ends as soon as its request begins);
 * before it, children are cut to their parent's time, as Jaeger does.
 */
function criticalPath(order, roots) {
  setReach(order);
  const length = (span) => span.reach - span.start;
  const root = roots.reduce((longest, span) => (longest && length(longest) >= length(span) ? longest : span), null);
  const stack = root ? [[root, root.start, root.reach]] : [];
  while (stack.length) {
    const [span, from, to] = stack.pop();
    const own = span.start + span.duration;
    let cursor = to;
    for (const child of to > own ? span.children.toSorted((a, b) => b.reach - a.reach) : []) {
      if (cursor <= own || child.reach <= own) break;
      if (child.reach > cursor) continue;
      stack.push([child, Math.max(child.start, from), child.reach]);
      cursor = Math.max(child.start, from);
    }
    const limit = (cursor = Math.min(cursor, own));
    const ends = span.children
      .map((child) => [child, Math.max(child.start, from), Math.min(child.start + child.duration, limit)])
      .filter(([, start, end]) => end > start)
      .sort((a, b) => b[2] - a[2]);
    for (const [child, start, end] of ends) {
      if (end > cursor) continue;
      if (cursor > end) span.critical.push([end, cursor]);
      stack.push([child, start, end]);
      cursor = start;
    }
    if (cursor > from) span.critical.push([from, cursor]);
    span.critical.reverse();
  }
}

/**
 * The records a span wrote or read, from the attributes that lead to the log entry: the first partition is in the
 * span's own attributes, the others are events named "partition". A refused partition has no record.
 */
function recordsOf(span) {
  const events = span.logs.filter((log) => tagValue(log.fields, "event") === "partition");
  const count = events.length ? 1 : Number(tagValue(span.tags, "messaging.batch.message_count") ?? 1);
  return [span.tags, ...events.map((log) => log.fields)].map((tags) => readRecord(tags, span, count)).filter(Boolean);
}

function readRecord(tags, span, count) {
  const first = (...keys) => keys.map((key) => tagValue(tags, key)).find((value) => value !== undefined);
  const topic = first("messaging.destination.name", "kafka.topic");
  const offset = first("messaging.kafka.offset", "messaging.kafka.message.offset");
  const refused = Number(first("kafka.error_code") ?? 0) !== 0 || Number(offset) < 0;
  if (topic === undefined || offset === undefined || refused) return null;
  const partition = first("messaging.destination.partition.id", "kafka.partition");
  return {topic: String(topic), partition: String(partition ?? "?"), offset: String(offset), span, count};
}

const PRODUCE_NAMES = new Set(["produce", "send", "publish"]);

function isProduce(span) {
  const names = ["messaging.operation.name", "messaging.operation.type"].map((key) => tagValue(span.tags, key));
  return span.op.includes("produce") || names.some((name) => PRODUCE_NAMES.has(String(name).toLowerCase()));
}

function produceRecords(spans) {
  if (!spans.some(isProduce)) return [];
  const found = new Map();
  for (const record of spans.flatMap(recordsOf)) {
    const key = JSON.stringify([record.topic, record.partition, record.offset]);
    const earlier = found.get(key);
    // The deepest span is the one that stored the record: the chip leads there.
    if (!earlier || record.span.depth > earlier.span.depth) found.set(key, record);
  }
  return [...found.values()];
}

/** What a messaging trace is about, such as "produce orders": its root has the same name in every trace. */
function subjectOf(order) {
  const span = order.find((item) => tagValue(item.tags, "messaging.operation.name") !== undefined);
  if (!span) return "";
  const topic = tagValue(span.tags, "messaging.destination.name");
  return [tagValue(span.tags, "messaging.operation.name"), topic].filter(Boolean).join(" ");
}

/** One Jaeger v1 trace as a tree, times in microseconds. `adjust` shifts the clocks of processes that run behind. */
export function parseTrace(raw, {adjust = false} = {}) {
  const id = String(raw.traceID ?? raw.spans[0]?.traceID ?? "(no id)");
  const {spans, byId, copies} = readSpans(raw, normalId(id));
  const {roots, missing} = link(spans, byId);
  const skewed = place(spans, missing, adjust);
  const order = flatten(roots);
  let [start, end] = [Infinity, -Infinity];
  for (const span of spans) {
    start = Math.min(start, span.start);
    end = Math.max(end, span.start + span.duration);
    span.self = selfTime(span);
  }
  if (!spans.length) [start, end] = [0, 0];
  criticalPath(order, roots);
  const root = order.find((span) => !span.missing) ?? null;
  const services = new Map();
  for (const span of spans) services.set(span.service, (services.get(span.service) ?? 0) + 1);
  return {
    raw,
    id,
    spans,
    order,
    roots,
    root,
    missing,
    start,
    adjust,
    skewed,
    copies,
    byId,
    duration: end - start,
    extent: Math.max(end - start, 1),
    services,
    errors: spans.filter((span) => span.error).length,
    depth: order.reduce((most, span) => Math.max(most, span.depth + 1), 0),
    warnings: pairs(raw.warnings?.map?.((text) => ({text}))).map((item) => String(item.text)),
    records: produceRecords(spans),
    subject: subjectOf(order),
  };
}

// ---- figures -------------------------------------------------------------------------------------------------------

const hopKey = (span) => `${span.service}\u0000${span.op}`;
const sum = (list) => list.reduce((total, value) => total + value, 0);

function quantile(sorted, part) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(part * sorted.length) - 1))];
}

/** Per-hop figures over one or many traces: a hop is an operation of a service. */
export function hopStatistics(traces) {
  const hops = new Map();
  for (const trace of traces) {
    for (const span of trace.spans) {
      const key = hopKey(span);
      if (!hops.has(key)) {
        hops.set(key, {key, service: span.service, op: span.op, durations: [], self: 0, critical: 0, errors: 0});
      }
      const hop = hops.get(key);
      hop.durations.push(span.duration);
      hop.self += span.self;
      hop.critical += sum(span.critical.map(([from, to]) => to - from));
      hop.errors += span.error ? 1 : 0;
    }
  }
  const whole = sum(traces.map((trace) => trace.duration)) || 1;
  return [...hops.values()].map(({durations, ...hop}) => {
    durations.sort((a, b) => a - b);
    const total = sum(durations);
    return {
      ...hop,
      count: durations.length,
      total,
      mean: total / durations.length,
      min: durations[0],
      p50: quantile(durations, 0.5),
      p95: quantile(durations, 0.95),
      max: durations[durations.length - 1],
      share: hop.critical / whole,
    };
  });
}

/** Both trees merged: children are paired by service and operation, in order. Rows carry `a`, `b` or both. */
export function mergeTraces(first, second) {
  const rows = [];
  const stack = [];
  const push = (as, bs, depth) => {
    const waiting = new Map();
    for (const b of bs) {
      if (!waiting.has(hopKey(b))) waiting.set(hopKey(b), []);
      waiting.get(hopKey(b)).push(b);
    }
    const merged = as.map((a) => ({a, b: waiting.get(hopKey(a))?.shift() ?? null, depth}));
    for (const left of waiting.values()) for (const b of left) merged.push({a: null, b, depth});
    const at = (row) => (row.a ? row.a.start - first.start : row.b.start - second.start);
    merged.sort((x, y) => at(x) - at(y));
    for (let i = merged.length - 1; i >= 0; i -= 1) stack.push(merged[i]);
  };
  push(first.roots, second.roots, 0);
  while (stack.length) {
    const row = stack.pop();
    rows.push(row);
    push(row.a?.children ?? [], row.b?.children ?? [], row.depth + 1);
  }
  return rows;
}

function compareHops(first, second) {
  const [a, b] = [first, second].map((trace) => new Map(hopStatistics([trace]).map((hop) => [hop.key, hop])));
  return [...new Set([...a.keys(), ...b.keys()])].map((key) => {
    const [x, y] = [a.get(key), b.get(key)];
    return {
      key,
      service: (x ?? y).service,
      op: (x ?? y).op,
      countA: x?.count ?? 0,
      countB: y?.count ?? 0,
      meanA: x?.mean ?? null,
      meanB: y?.mean ?? null,
      selfA: x?.self ?? 0,
      selfB: y?.self ?? 0,
      delta: (y?.total ?? 0) - (x?.total ?? 0),
      selfDelta: (y?.self ?? 0) - (x?.self ?? 0),
    };
  });
}

// ---- words ---------------------------------------------------------------------------------------------------------

const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

/** A time span given in microseconds, with three digits that matter. */
export function duration(us) {
  if (us === null || us === undefined || !Number.isFinite(us)) return "–";
  const abs = Math.abs(us);
  const sign = us < 0 ? "−" : "";
  if (abs < 1000) return `${sign}${Number.isInteger(abs) ? abs : digits(abs)} µs`;
  if (abs < 999_500) return `${sign}${digits(abs / 1000)} ms`;
  if (abs < 60_000_000) return `${sign}${digits(abs / 1e6)} s`;
  const seconds = Math.round(abs / 1e6);
  if (seconds < 3600) return `${sign}${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${sign}${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

const signed = (us) => (us > 0 ? `+${duration(us)}` : duration(us));
const percent = (part) =>
  part > 0 && part < 0.001 ? "< 0.1 %" : `${(part * 100).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const were = (count) => (count === 1 ? "was" : "were");
const shortId = (id) => id.slice(0, 8);
const headline = (trace) => trace.subject || trace.root?.op || "empty trace";

function clock(us, withDate = true) {
  const date = new Date(us / 1000);
  if (Number.isNaN(date.getTime()) || us <= 0) return "unknown time";
  const two = (value) => String(value).padStart(2, "0");
  const time =
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.` +
    String(Math.floor((us / 1000) % 1000)).padStart(3, "0");
  return withDate ? `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}` : time;
}

/** "1.5ms", "200us" or "2s" in microseconds; null if empty; NaN if it cannot be read. */
function readDuration(text) {
  if (!text.trim()) return null;
  const match = /^\s*([\d.]+)\s*(us|µs|ms|s|m)?\s*$/.exec(text);
  if (!match) return NaN;
  return Number(match[1]) * {us: 1, µs: 1, ms: 1e3, s: 1e6, m: 6e7}[match[2] ?? "us"];
}

/** `key=value key2="two words"` or a JSON object, as an object. */
function readTags(text) {
  const trimmed = text.trim();
  if (!trimmed) return {};
  if (trimmed.startsWith("{")) {
    try {
      return Object.fromEntries(Object.entries(JSON.parse(trimmed)).map(([key, value]) => [key, String(value)]));
    } catch (error) {
      throw new TraceError(`Tags: not valid JSON (${error.message}).`, "Write key=value, or a JSON object.");
    }
  }
  const tags = {};
  const rest = trimmed.replace(/([^\s=]+)=("([^"]*)"|\S+)/g, (_, key, value, quoted) => {
    tags[key] = quoted ?? value;
    return "";
  });
  if (rest.trim()) throw new TraceError(`Tags: cannot read "${rest.trim()}".`, 'Write key=value or key="two words".');
  return tags;
}

// ---- elements ------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
const scoped = (names) =>
  names
    .split(" ")
    .filter(Boolean)
    .map((name) => `rtv-${name}`)
    .join(" ");

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", scoped(value));
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, item]) => element.style.setProperty(key, item));
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const h = (tag, props, ...children) => build(document.createElement(tag), props, children);
const svg = (tag, props, ...children) => build(document.createElementNS(SVG, tag), props, children);

const ICONS = {
  logo: "M3 4h9M7 8h8M5 12h6",
  back: "M10 3 5 8l5 5",
  chevron: "M6 4l4 4-4 4",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM11 11l3.5 3.5",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  import: "M8 10V2M5 5l3-3 3 3M3 10v3h10v-3",
  export: "M8 2v8M5 7l3 3 3-3M3 11v2.5h10V11",
  compare: "M3 5h10M10 2l3 3-3 3M13 11H3M6 8l-3 3 3 3",
  theme: "M8 2a6 6 0 1 0 0 12V2Z",
  warn: "M8 2 15 14H1L8 2ZM8 6.5v3.5M8 12v.3",
  error: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 5v3.6M8 10.8v.3",
  record: "M3 4.5C3 3 13 3 13 4.5v7c0 1.5-10 1.5-10 0v-7ZM3 4.5C3 6 13 6 13 4.5M3 8c0 1.5 10 1.5 10 0",
  copy: "M6 6h7v7H6zM3 10V3h7",
  refresh: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  path: "M2 12h4V8h4V4h4",
  reset: "M2 6V2h4M14 6V2h-4M2 10v4h4M14 10v4h-4",
};

function icon(name) {
  return svg(
    "svg",
    {class: `icon icon-${name}`, viewBox: "0 0 16 16", "aria-hidden": "true"},
    svg("path", {d: ICONS[name]}),
  );
}

function button(label, {symbol, iconOnly = false, ...props} = {}) {
  const cls = `btn ${iconOnly ? "btn-icon" : ""} ${props.class ?? ""}`;
  return h(
    "button",
    {type: "button", title: label, ...props, class: cls, "aria-label": iconOnly ? label : null},
    symbol && icon(symbol),
    !iconOnly && h("span", null, props.text ?? label),
  );
}

let lastId = 0;
const uniqueId = (name) => `rtv-${name}-${(lastId += 1)}`;

function field(label, control) {
  const id = uniqueId("field");
  control.id = id;
  return h("div", {class: "field"}, h("label", {for: id}, label), control);
}

function select(options, value, props) {
  return h(
    "select",
    {class: "input", ...props},
    options.map(([key, label]) => h("option", {value: key, selected: key === value}, label)),
  );
}

/** A scrolling column of equal rows of which only the visible ones are in the document. */
class Rows {
  constructor({height, create, update, ...props}) {
    Object.assign(this, {height, create, update, count: 0, live: new Map(), spare: []});
    this.spacer = h("div", {class: "spacer", role: "presentation"});
    const attributes = {...props, "data-lm-suppress-shortcuts": "true"};
    this.element = h(
      "div",
      {...attributes, class: `scroll ${props.class ?? ""}`, onscroll: () => this.draw()},
      this.spacer,
    );
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.element);
  }

  setCount(count) {
    this.count = count;
    this.spacer.style.height = `${count * this.height}px`;
    this.redraw();
  }

  redraw() {
    this.stale = true;
    this.draw();
  }

  draw() {
    const top = this.element.scrollTop;
    const first = Math.max(0, Math.floor(top / this.height) - OVERSCAN);
    const last = Math.min(this.count, Math.ceil((top + this.element.clientHeight) / this.height) + OVERSCAN);
    for (const [index, row] of this.live) {
      if (index >= first && index < last) continue;
      this.live.delete(index);
      this.spare.push(row);
    }
    for (let index = first; index < last; index += 1) {
      const known = this.live.get(index);
      if (known && !this.stale) continue;
      const row = known ?? this.spare.pop() ?? this.create();
      this.live.set(index, row);
      row.element.style.transform = `translateY(${index * this.height}px)`;
      row.element.dataset.index = index;
      this.update(row, index);
      if (row.element.parentNode !== this.spacer) this.spacer.append(row.element);
    }
    for (const row of this.spare) row.element.remove();
    this.stale = false;
  }

  reveal(index) {
    const {scrollTop, clientHeight} = this.element;
    const top = index * this.height;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + this.height - clientHeight;
    this.draw();
  }

  center(index) {
    const {scrollTop, clientHeight} = this.element;
    const top = index * this.height;
    if (top >= scrollTop && top + this.height <= scrollTop + clientHeight) return this.draw();
    this.element.scrollTop = top - clientHeight / 2;
    return this.draw();
  }

  destroy() {
    this.watch.disconnect();
  }
}

const indexOf = (event) => {
  const row = event.target.closest("[data-index]");
  return row ? Number(row.dataset.index) : -1;
};

/** A table whose columns sort. Columns: {key, label, title, text(row), number, cell(row)}. */
function sortableTable({columns, rows, sortBy, label, onpick}) {
  let [key, down] = [sortBy, true];
  let limit = TABLE_PAGE;
  const body = h("tbody");
  const heads = new Map();
  const more = h("div", {class: "more"});
  const draw = () => {
    const column = columns.find((item) => item.key === key);
    const value = column.value ?? ((row) => row[key]);
    const sorted = [...rows].sort((x, y) => {
      const [a, b] = [value(x) ?? -Infinity, value(y) ?? -Infinity];
      const order = typeof a === "string" ? a.localeCompare(b) : a - b;
      return down ? -order : order;
    });
    for (const [name, head] of heads) {
      head.setAttribute("aria-sort", name !== key ? "none" : down ? "descending" : "ascending");
    }
    body.replaceChildren(
      ...sorted.slice(0, limit).map((row) =>
        h(
          "tr",
          {
            class: onpick ? "pick" : "",
            tabindex: onpick ? "0" : null,
            onclick: onpick && (() => onpick(row)),
            onkeydown: onpick && ((event) => event.key === "Enter" && onpick(row)),
          },
          columns.map((item) =>
            h("td", {class: item.number ? "num" : ""}, item.cell ? item.cell(row) : item.text(row)),
          ),
        ),
      ),
    );
    more.replaceChildren();
    if (rows.length > limit) {
      more.append(
        button(`Show all ${rows.length.toLocaleString("en")} rows`, {
          onclick: () => {
            limit = Infinity;
            draw();
          },
        }),
      );
    }
  };
  const head = h(
    "tr",
    null,
    columns.map((item) => {
      const cell = h(
        "th",
        {class: item.number ? "num" : "", scope: "col", title: item.title},
        h(
          "button",
          {
            type: "button",
            class: "sort",
            onclick: () => {
              [key, down] = [item.key, item.key === key ? !down : Boolean(item.number)];
              draw();
            },
          },
          item.label,
        ),
      );
      heads.set(item.key, cell);
      return cell;
    }),
  );
  draw();
  return h(
    "div",
    {class: "table-wrap"},
    h("table", {class: "table", "aria-label": label}, h("thead", null, head), body),
    more,
  );
}

function emptyState({title, text, code, actions = [], kind = "empty"}) {
  return h(
    "div",
    {class: `state state-${kind}`, role: kind === "error" ? "alert" : "status"},
    icon(kind === "error" ? "error" : "logo"),
    h("h2", null, title),
    text && h("p", null, text),
    code && h("pre", null, code),
    actions.length ? h("div", {class: "actions"}, actions) : null,
  );
}

function hopLabel(viewer, hop) {
  return h(
    "span",
    {class: "hop"},
    h("i", {class: "dot", style: {background: viewer.colour(hop.service)}}),
    h("b", null, hop.op),
    h("span", {class: "muted"}, hop.service),
  );
}

function recordChip(record, props = {}) {
  const last = Number(record.offset) + record.count - 1;
  const offset = record.count > 1 && Number.isSafeInteger(last) ? `${record.offset}–${last}` : record.offset;
  const text = `Topic ${record.topic}, partition ${record.partition}, offset ${offset}: logged with this trace id`;
  return h(
    props.onclick ? "button" : "span",
    {type: props.onclick ? "button" : null, title: text, ...props, class: `record ${props.class ?? ""}`},
    icon("record"),
    h("span", {class: "record-word"}, record.count > 1 ? `${record.count} records` : "record"),
    h("b", null, record.topic),
    h("span", {class: "record-part"}, `partition ${record.partition}`),
    h("span", {class: "record-offset"}, `offset ${offset}`),
  );
}

function recordChips(records, onpick) {
  const shown = records
    .slice(0, RECORD_CHIPS)
    .map((record) => recordChip(record, onpick ? {onclick: () => onpick(record.span)} : {}));
  if (records.length > RECORD_CHIPS) shown.push(h("span", {class: "muted"}, `+${records.length - RECORD_CHIPS}`));
  return shown;
}

/** Round steps (1, 2 or 5 times a power of ten) that cut [from, to] into about `wanted` parts. */
function ticks(from, to, wanted) {
  const rough = (to - from) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i += 1) found.push(i * step);
  return found;
}

function tickLabel(time, part, width) {
  const late = (1 - part) * width < TICK_WIDTH;
  // toPrecision takes away what multiplying a decimal step adds: 0.30000000000000004.
  return h(
    "span",
    {class: late ? "tick tick-last" : "tick", style: {left: share(part)}},
    duration(Number(time.toPrecision(12))),
  );
}

/** A dotted key that may break after its dots and underscores. */
function breakable(text) {
  return text.split(/(?<=[._/])/).flatMap((piece, index) => (index ? [h("wbr"), piece] : [piece]));
}

function download(name, data) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(data, null, 2)], {type: "application/json"}));
  h("a", {href: url, download: name}).click();
  // The click only starts the download; revoking in the same turn would cancel it.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// ---- one trace -----------------------------------------------------------------------------------------------------

const share = (part) => `${part * 100}%`;

/** Puts an element over a part of what it lies in, from 0 to 1. */
function stretch(element, from, to) {
  element.style.left = share(from);
  element.style.width = share(Math.max(0, to - from));
}

const indentTo = (element, depth) => (element.style.width = `${Math.min(depth, MAX_INDENT) * 14}px`);

/** What the views share: `rows`, `tabs`, the `tab` that is shown. A view shows a tab by its `showTab(name)`. */
class View {
  tabs = [];

  buildTabs(labels) {
    this.tabs = Object.entries(labels).map(([name, label]) =>
      h(
        "button",
        {type: "button", role: "tab", class: "tab", "data-tab": name, onclick: () => this.showTab(name)},
        label,
      ),
    );
  }

  markTab(name) {
    this.tab = name;
    for (const tab of this.tabs) tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
  }

  themed() {}

  focus() {
    // A view takes the focus when it is shown, for its shortcuts; a frame around all of it would say nothing.
    this.rows.element.focus({preventScroll: true, focusVisible: false});
  }
}

/** The whole trace in small, with the part that the timeline shows as a window that can be dragged and typed. */
class Minimap {
  constructor(view) {
    this.view = view;
    this.canvas = h("canvas", {class: "map-canvas", "aria-hidden": "true"});
    this.window = h("div", {class: "map-window"});
    this.shades = [h("div", {class: "map-shade"}), h("div", {class: "map-shade"})];
    this.drag = h("div", {class: "map-drag"});
    this.handles = ["start", "end"].map((side, index) =>
      h("div", {
        class: "map-handle",
        role: "slider",
        tabindex: "0",
        "aria-label": `${side} of the shown time range`,
        "aria-orientation": "horizontal",
        "data-side": side,
        onkeydown: (event) => this.key(event, index),
      }),
    );
    this.axis = h("div", {class: "map-axis", "aria-hidden": "true"});
    this.area = h(
      "div",
      {
        class: "map-area",
        title: "Drag to zoom into a time range; double-click to show all",
        onpointerdown: (event) => this.press(event),
        ondblclick: () => view.zoomTo(0, 1),
      },
      this.canvas,
      ...this.shades,
      this.window,
      this.drag,
      ...this.handles,
    );
    this.element = h("div", {class: "map"}, this.axis, this.area);
    this.watch = new ResizeObserver(() => this.paint());
    this.watch.observe(this.area);
  }

  at(event) {
    const box = this.area.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  }

  press(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    const side = event.target.dataset.side;
    const origin = this.at(event);
    const [from, to] = this.view.range;
    const inside = (from > 0 || to < 1) && event.shiftKey;
    const move = (next) => {
      const now = this.at(next);
      if (side === "start") this.view.zoomTo(Math.min(now, to - MIN_ZOOM), to);
      else if (side === "end") this.view.zoomTo(from, Math.max(now, from + MIN_ZOOM));
      else if (inside) this.view.zoomTo(from + now - origin, to + now - origin);
      else this.band(Math.min(origin, now), Math.max(origin, now));
    };
    const up = (last) => {
      this.area.removeEventListener("pointermove", move);
      const now = this.at(last);
      this.band(0, 0);
      // A press that hardly moves is a click, not a range.
      if (!side && !inside && Math.abs(now - origin) > 0.004)
        this.view.zoomTo(Math.min(origin, now), Math.max(origin, now));
    };
    this.area.setPointerCapture(event.pointerId);
    this.area.addEventListener("pointermove", move);
    this.area.addEventListener("pointerup", up, {once: true});
  }

  band(from, to) {
    stretch(this.drag, from, to);
  }

  key(event, index) {
    const step = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const range = [...this.view.range];
    range[index] += step * (event.shiftKey ? 0.1 : 0.01);
    const gap = MIN_ZOOM * (index ? 1 : -1);
    range[index] = index ? Math.max(range[1], range[0] + gap) : Math.min(range[0], range[1] + gap);
    this.view.zoomTo(...range);
  }

  move() {
    const [from, to] = this.view.range;
    const whole = from <= 0 && to >= 1;
    stretch(this.shades[0], 0, from);
    stretch(this.shades[1], to, 1);
    stretch(this.window, from, to);
    this.window.hidden = whole;
    [from, to].forEach((value, index) => {
      const handle = this.handles[index];
      handle.style.left = share(value);
      handle.setAttribute("aria-valuemin", "0");
      handle.setAttribute("aria-valuemax", "100");
      handle.setAttribute("aria-valuenow", String(Math.round(value * 1000) / 10));
      handle.setAttribute("aria-valuetext", duration(value * this.view.trace.extent));
    });
  }

  paint() {
    const {trace, viewer, matches, showCritical} = this.view;
    const {clientWidth: width, clientHeight: height} = this.area;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const pad = 5;
    const row = (height - 2 * pad) / Math.max(trace.order.length, 1);
    const thick = Math.max(1, Math.min(row * 0.72, 6));
    const x = (time) => ((time - trace.start) / trace.extent) * width;
    const colours = new Map();
    const find = matches.size > 0;
    const ink = viewer.cssColour("--rtv-crit");
    const bad = viewer.cssColour("--rtv-bad");
    // What was found is drawn last, and never too thin to see.
    const order = find ? trace.order.toSorted((a, b) => matches.has(a.key) - matches.has(b.key)) : trace.order;
    for (const span of order) {
      const name = span.missing ? "--rtv-faint" : viewer.colourName(span.service);
      if (!colours.has(name)) colours.set(name, viewer.cssColour(name));
      const y = pad + span.index * row + (row - thick) / 2;
      const found = find && matches.has(span.key);
      pen.globalAlpha = find && !found ? 0.2 : 1;
      pen.fillStyle = span.error ? bad : colours.get(name);
      pen.fillRect(
        x(span.start),
        y,
        Math.max(found ? 3 : 1.5, (span.duration / trace.extent) * width),
        found ? Math.max(3, thick) : thick,
      );
      if (!showCritical || thick < 2.5) continue;
      pen.fillStyle = ink;
      for (const [from, to] of span.critical)
        pen.fillRect(x(from), y + thick - 1.25, ((to - from) / trace.extent) * width, 1.25);
    }
    this.axis.replaceChildren(
      ...ticks(0, trace.extent, Math.max(2, width / 130)).map((time) => tickLabel(time, time / trace.extent, width)),
    );
    this.move();
  }

  destroy() {
    this.watch.disconnect();
  }
}

/** What one span carries: times, attributes, events, links, process. */
function spanDetail(view, span) {
  const {viewer, trace} = view;
  const copy = (value, what) =>
    h(
      "button",
      {
        type: "button",
        class: "copy",
        title: `Copy ${what}`,
        "aria-label": `Copy ${what}`,
        onclick: () => viewer.copy(value),
      },
      icon("copy"),
    );
  const value = (item) => {
    const text = typeof item === "string" ? item : JSON.stringify(item);
    if (/^https?:\/\/\S+$/.test(text)) return h("a", {href: text, target: "_blank", rel: "noopener noreferrer"}, text);
    if (/^[[{]/.test(text)) {
      try {
        return h("pre", null, JSON.stringify(JSON.parse(text), null, 2));
      } catch {
        return text; // looks like JSON and is not: shown as it came
      }
    }
    return text;
  };
  const table = (tags, label) =>
    tags.length
      ? h(
          "table",
          {class: "tags", "aria-label": label},
          h(
            "tbody",
            null,
            tags.map((tag) =>
              h(
                "tr",
                null,
                h("th", {scope: "row"}, breakable(String(tag.key))),
                h(
                  "td",
                  {class: `type-${String(tag.type ?? typeof tag.value).replace(/\W/g, "")}`},
                  value(tag.value ?? ""),
                  copy(typeof tag.value === "string" ? tag.value : JSON.stringify(tag.value ?? ""), String(tag.key)),
                ),
              ),
            ),
          ),
        )
      : h("p", {class: "muted none"}, "None.");
  const section = (title, count, content, open = count > 0) =>
    h(
      "details",
      {class: "section", open},
      h("summary", null, icon("chevron"), title, h("span", {class: "count"}, String(count))),
      content,
    );
  const fact = (label, text, extra) => h("div", {class: "fact"}, h("dt", null, label), h("dd", null, text, extra));
  const events = span.logs.map((log) => {
    const name = tagValue(log.fields, "event") ?? tagValue(log.fields, "message");
    return h(
      "div",
      {class: "event"},
      h(
        "div",
        {class: "event-head"},
        h("b", null, name === undefined ? "event" : String(name)),
        h(
          "span",
          {class: "muted", title: clock(log.time)},
          `at ${duration(log.time - trace.start + view.shift(span))}`,
        ),
      ),
      table(
        log.fields.filter((tag) => tag.key !== "event"),
        "Event fields",
      ),
    );
  });
  const links = span.links.map((ref) =>
    h(
      "div",
      {class: "link"},
      h(
        "span",
        {class: "tag"},
        String(ref.refType ?? "link")
          .toLowerCase()
          .replace("_", " "),
      ),
      h(
        "button",
        {type: "button", class: "linklike mono", onclick: () => viewer.followLink(ref, trace)},
        normalId(ref.traceID ?? trace.id) === normalId(trace.id)
          ? `span ${ref.spanID}`
          : `trace ${ref.traceID} span ${ref.spanID}`,
      ),
    ),
  );
  const critical = sum(span.critical.map(([from, to]) => to - from));
  const parent = span.parent;
  return h(
    "div",
    {class: "detail-body"},
    h(
      "header",
      {class: "detail-head"},
      h("i", {class: "strip", style: {background: view.colour(span)}}),
      h(
        "div",
        null,
        h("h3", null, span.op),
        h("p", {class: "muted"}, span.missing ? "not in this trace" : span.service, span.kind && ` · ${span.kind}`),
      ),
      button("Close details (Esc)", {symbol: "close", iconOnly: true, onclick: () => view.closeDetail()}),
    ),
    span.error &&
      h(
        "p",
        {class: "notice notice-error"},
        icon("error"),
        String(
          tagValue(span.tags, "otel.status_description") ?? tagValue(span.tags, "error.message") ?? "This span failed.",
        ),
      ),
    span.warnings.map((text) => h("p", {class: "notice notice-warn"}, icon("warn"), text)),
    recordsOf(span)
      .slice(0, RECORDS_IN_DETAIL)
      .map((record) => recordChip(record, {class: "record-wide"})),
    h(
      "dl",
      {class: "facts"},
      fact("Start", duration(span.start - trace.start), h("span", {class: "muted"}, ` ${clock(span.start, false)}`)),
      fact(
        "Duration",
        duration(span.duration),
        h("span", {class: "muted"}, ` ${percent(span.duration / trace.extent)} of trace`),
      ),
      !span.missing && fact("Self time", duration(span.self)),
      !span.missing && fact("On critical path", duration(critical)),
      fact("Span id", h("span", {class: "mono"}, span.id), copy(span.id, "span id")),
      fact(
        "Parent",
        parent
          ? h("button", {type: "button", class: "linklike", onclick: () => view.select(parent.key)}, parent.op)
          : "none (root)",
      ),
    ),
    !span.missing && [
      section("Attributes", span.tags.length, table(span.tags, "Attributes")),
      section("Events", events.length, events.length ? events : h("p", {class: "muted none"}, "None.")),
      section("Links", links.length, links.length ? links : h("p", {class: "muted none"}, "None.")),
      section("Process", span.processTags.length, table(span.processTags, "Process"), false),
    ],
  );
}

class TraceView extends View {
  constructor(viewer, trace, {span = null} = {}) {
    super();
    Object.assign(this, {
      viewer,
      trace,
      range: [0, 1],
      collapsed: new Set(),
      matches: new Set(),
      selected: null,
      showCritical: true,
      tab: "timeline",
      query: "",
    });
    this.map = new Minimap(this);
    this.rows = new Rows({
      height: ROW_HEIGHT,
      create: () => this.createRow(),
      update: (row, index) => this.updateRow(row, this.visible[index]),
      class: "tree",
      role: "tree",
      tabindex: "0",
      "aria-label": "Spans of this trace",
      onclick: (event) => this.click(event),
      onwheel: (event) => this.wheel(event),
    });
    this.build();
    this.refilter();
    if (span) this.select(span, {reveal: true});
  }

  // A missing parent has no service; its bar is hatched by the style sheet.
  colour(span) {
    return span.missing ? "var(--rtv-faint)" : this.viewer.colour(span.service);
  }

  shift(span) {
    return span.raw ? span.start - (Number(span.raw.startTime) || span.start) : 0;
  }

  build() {
    this.head = h("div", {class: "trace-head"});
    this.notes = h("div", {class: "notes"});
    this.axis = h("div", {
      class: "axis",
      onpointerdown: (event) => this.dragAxis(event),
      ondblclick: () => this.zoomTo(0, 1),
      title: "Drag to zoom; double-click to show all",
    });
    this.lines = h("div", {class: "lines", "aria-hidden": "true"});
    this.cursor = h("i", {class: "cursor", hidden: true});
    this.cursorLabel = h("span", {class: "cursor-label", hidden: true, "aria-hidden": "true"});
    this.splitter = h("div", {
      class: "splitter",
      role: "separator",
      tabindex: "0",
      "aria-orientation": "vertical",
      "aria-label": "Width of the name column",
      "aria-valuemin": "15",
      "aria-valuemax": "75",
      onpointerdown: (event) => this.dragSplitter(event),
      onkeydown: (event) => this.keySplitter(event),
    });
    this.columnHead = h(
      "div",
      {class: "wf-head"},
      h(
        "div",
        {class: "wf-name"},
        h("span", null, "Service and operation"),
        h("span", {class: "grow"}),
        button("Expand all (e)", {symbol: "down", iconOnly: true, onclick: () => this.expandAll()}),
        button("Collapse all (Shift+E)", {symbol: "up", iconOnly: true, onclick: () => this.collapseAll()}),
      ),
      this.axis,
    );
    this.detail = h("aside", {class: "detail", hidden: true, "aria-label": "Span details"});
    this.timeline = h(
      "div",
      {class: "timeline"},
      this.map.element,
      h(
        "div",
        {class: "split"},
        h(
          "div",
          {class: "wf"},
          this.columnHead,
          h(
            "div",
            {class: "wf-body", onpointermove: (event) => this.point(event), onpointerleave: () => this.point(null)},
            this.lines,
            this.rows.element,
            this.splitter,
          ),
        ),
        this.detail,
      ),
    );
    this.panel = h("div", {class: "panel", role: "tabpanel"});
    this.element = h("section", {class: "trace-view", "aria-label": "Trace"}, this.head, this.notes, this.panel);
    this.buildHead();
    this.buildNotes();
    this.showTab("timeline");
    this.setSplit(this.viewer.split ?? 36);
    this.watch = new ResizeObserver(() => this.layout());
    this.watch.observe(this.rows.element);
  }

  buildHead() {
    const {trace, viewer} = this;
    const root = trace.root;
    const fact = (label, text, cls) =>
      h("div", {class: "fact"}, h("dt", null, label), h("dd", {class: cls ?? ""}, text));
    this.findBox = h("input", {
      class: "input find-input",
      type: "search",
      placeholder: "Find in trace",
      value: this.query,
      "aria-label": "Find in trace: name, service, id, attribute or key=value",
      oninput: () => this.find(this.findBox.value),
      onkeydown: (event) => this.findKey(event),
    });
    this.findCount = h("span", {class: "find-count", role: "status", "aria-live": "polite"});
    this.criticalButton = button("Critical path", {
      symbol: "path",
      class: "toggle",
      "aria-pressed": String(this.showCritical),
      title: "Show the critical path (c)",
      onclick: () => this.toggleCritical(),
    });
    this.buildTabs({timeline: "Timeline", statistics: "Statistics"});
    const legend = [...trace.services].map(([service, count]) =>
      h(
        "button",
        {type: "button", class: "service", title: `Find the spans of ${service}`, onclick: () => this.setFind(service)},
        h("i", {class: "dot", style: {background: viewer.colour(service)}}),
        service,
        h("span", {class: "count"}, String(count)),
      ),
    );
    this.head.replaceChildren(
      h(
        "div",
        {class: "title-line"},
        h("h2", null, headline(trace), trace.subject && h("span", {class: "muted"}, root.op)),
        h(
          "button",
          {
            type: "button",
            class: "linklike mono trace-id",
            title: `Copy trace id ${trace.id}`,
            onclick: () => viewer.copy(trace.id),
          },
          trace.id,
          icon("copy"),
        ),
        recordChips(trace.records, (span) => this.select(span.key, {reveal: true})),
      ),
      h(
        "div",
        {class: "facts-line"},
        h(
          "dl",
          {class: "strip-facts"},
          fact("Start", clock(trace.start)),
          fact("Duration", duration(trace.duration), "strong"),
          fact("Spans", trace.spans.length.toLocaleString("en")),
          fact("Depth", String(trace.depth)),
          trace.errors ? fact("Errors", String(trace.errors), "bad") : null,
        ),
        h("div", {class: "legend"}, legend),
      ),
      h(
        "div",
        {class: "tool-line"},
        h("div", {class: "tabs", role: "tablist", "aria-label": "Views of the trace"}, this.tabs),
        h("span", {class: "grow"}),
        this.criticalButton,
        button("Show all (0)", {symbol: "reset", text: "Reset zoom", class: "reset", onclick: () => this.zoomTo(0, 1)}),
        h(
          "div",
          {class: "find"},
          icon("search"),
          this.findBox,
          this.findCount,
          button("Previous match (Shift+Enter)", {symbol: "up", iconOnly: true, onclick: () => this.step(-1)}),
          button("Next match (Enter)", {symbol: "down", iconOnly: true, onclick: () => this.step(1)}),
        ),
      ),
    );
    this.resetButton = this.head.querySelector(".rtv-reset");
  }

  buildNotes() {
    const {trace} = this;
    const note = (text, action) => h("div", {class: "notice notice-warn"}, icon("warn"), h("span", null, text), action);
    const notes = trace.warnings.map((text) => note(text));
    if (trace.missing.length) {
      notes.push(
        note(
          `${plural(trace.missing.length, "parent span")} not in this trace: children hang under a hatched row. ` +
            "Late spans may still arrive; reload to look again.",
        ),
      );
    }
    if (trace.skewed) {
      notes.push(
        note(
          trace.adjust
            ? "Clocks adjusted: processes that ran behind were shifted to start within their caller."
            : `${plural(trace.skewed, "span")} before the parent's start: clocks differ. Times are shown as recorded.`,
          button(trace.adjust ? "Show recorded times" : "Adjust clocks", {onclick: () => this.toggleAdjust()}),
        ),
      );
    }
    if (trace.copies)
      notes.push(note(`${plural(trace.copies, "exact copy")} of spans left out.`.replace("copys", "copies")));
    this.notes.replaceChildren(...notes);
  }

  showTab(name) {
    this.markTab(name);
    this.head.classList.toggle("rtv-no-timeline", name !== "timeline");
    if (name === "timeline") {
      this.panel.replaceChildren(
        this.trace.spans.length
          ? this.timeline
          : emptyState({
              title: "This trace has no spans",
              text: "Its spans may have expired or not arrived yet. Reload, or choose another trace.",
            }),
      );
      this.rows.redraw();
    } else {
      this.panel.replaceChildren(
        statisticsTable(this.viewer, [this.trace], (hop) => {
          this.showTab("timeline");
          this.setFind(hop.op);
        }),
      );
    }
  }

  // -- rows

  refilter() {
    const order = this.trace.order;
    this.visible = [];
    for (let i = 0; i < order.length; i += 1) {
      this.visible.push(order[i]);
      if (this.collapsed.has(order[i].key)) i += order[i].size;
    }
    this.rows.setCount(this.visible.length);
    this.drawAxis();
    this.mark();
  }

  createRow() {
    const part = (name, ...children) => h("div", {class: name}, ...children);
    const row = {
      indent: h("span", {class: "indent"}),
      toggle: h("span", {class: "toggle-tree"}, icon("chevron")),
      strip: h("i", {class: "strip"}),
      op: h("span", {class: "op"}),
      service: h("span", {class: "svc"}),
      flags: h("span", {class: "flags"}),
      bar: part("bar"),
      marks: part("marks"),
      label: part("label"),
    };
    row.element = h(
      "div",
      {class: "row", role: "treeitem", id: uniqueId("row")},
      part("cell-name", row.indent, row.toggle, row.strip, row.op, row.service, row.flags),
      part("cell-time", row.bar, row.marks, row.label),
    );
    return row;
  }

  updateRow(row, span) {
    const {element} = row;
    const shut = this.collapsed.has(span.key);
    const found = this.matches.has(span.key);
    element.className = scoped(
      `row ${span.key === this.selected ? "sel" : ""} ${found ? "match" : ""} ` +
        `${this.matches.size && !found ? "dim" : ""} ${span.missing ? "missing" : ""} ${span.error ? "failed" : ""}`,
    );
    element.dataset.span = span.key;
    element.style.setProperty("--rtv-span", this.colour(span));
    const set = (name, value) => (value === null ? element.removeAttribute(name) : element.setAttribute(name, value));
    const siblings = span.parent ? span.parent.children : this.trace.roots;
    set("aria-level", String(span.depth + 1));
    set("aria-setsize", String(siblings.length));
    set("aria-posinset", String((span.place ??= siblings.indexOf(span) + 1)));
    set("aria-expanded", span.children.length ? String(!shut) : null);
    set("aria-selected", String(span.key === this.selected));
    set(
      "aria-label",
      `${span.op}, ${span.service || "missing"}, ${duration(span.duration)}${span.error ? ", failed" : ""}`,
    );
    indentTo(row.indent, span.depth);
    row.toggle.classList.toggle("rtv-open", !shut);
    row.toggle.classList.toggle("rtv-leaf", !span.children.length);
    row.op.textContent = span.op;
    row.service.textContent = span.missing ? span.id : span.service;
    row.flags.replaceChildren(...this.flags(span, shut));
    this.updateBar(row, span);
  }

  flags(span, shut) {
    const flags = [];
    if (span.depth > MAX_INDENT) flags.push(h("span", {class: "count", title: "Depth"}, `level ${span.depth + 1}`));
    if (shut) flags.push(h("span", {class: "count", title: "Hidden spans"}, `+${span.size}`));
    if (recordsOf(span).length) flags.push(h("span", {class: "flag-record", title: "Names a record"}, icon("record")));
    if (span.error) flags.push(h("span", {class: "flag-error", title: "This span failed"}, icon("error")));
    if (span.warnings.length)
      flags.push(h("span", {class: "flag-warn", title: span.warnings.join("\n")}, icon("warn")));
    return flags;
  }

  updateBar(row, span) {
    const {trace} = this;
    const [from, to] = this.range;
    const part = (time) => ((time - trace.start) / trace.extent - from) / (to - from);
    const [left, right] = [part(span.start), part(span.start + span.duration)];
    const [a, b] = [Math.max(-0.01, left), Math.min(1.01, right)];
    const out = right < 0 || left > 1;
    row.bar.hidden = out;
    stretch(row.bar, a, b);
    const marks = [];
    if (this.showCritical && !out) {
      for (const [x, y] of joinClose(span.critical, (trace.extent * (to - from)) / MARKS_PER_ROW)) {
        const [start, end] = [Math.max(-0.01, part(x)), Math.min(1.01, part(y))];
        if (end < 0 || start > 1) continue;
        marks.push(h("i", {class: "crit", style: {left: share(start), width: share(end - start)}}));
      }
    }
    for (const log of span.logs.slice(0, MARKS_PER_ROW)) {
      const at = part(log.time + this.shift(span));
      if (at >= 0 && at <= 1) marks.push(h("i", {class: "tick-event", style: {left: share(at)}}));
    }
    row.marks.replaceChildren(...marks);
    row.label.textContent = out
      ? right < 0
        ? `‹ ${duration(span.duration)}`
        : `${duration(span.duration)} ›`
      : duration(span.duration);
    const side = out ? (right < 0 ? "edge-left" : "edge-right") : b < 0.86 ? "after" : a > 0.14 ? "before" : "within";
    row.label.className = scoped(`label label-${side}`);
    row.label.style.left = side === "after" ? share(Math.max(b, 0)) : "";
    row.label.style.right = side === "before" ? share(1 - a) : side === "within" ? share(Math.max(0, 1 - b)) : "";
  }

  mark() {
    const index = this.visible.findIndex((span) => span.key === this.selected);
    const row = this.rows.live.get(index);
    if (row) this.rows.element.setAttribute("aria-activedescendant", row.element.id);
    else this.rows.element.removeAttribute("aria-activedescendant");
  }

  drawAxis() {
    const [from, to] = this.range;
    const {extent} = this.trace;
    const gutter = this.rows.element.offsetWidth - this.rows.element.clientWidth;
    this.element.style.setProperty("--rtv-gutter", `${gutter}px`);
    const times = ticks(from * extent, to * extent, Math.max(2, (this.axis.clientWidth || 600) / 120));
    const part = (time) => (time / extent - from) / (to - from);
    this.axis.replaceChildren(
      ...times.map((time) => tickLabel(time, part(time), this.axis.clientWidth)),
      this.cursorLabel,
    );
    this.lines.replaceChildren(...times.map((time) => h("i", {style: {left: share(part(time))}})), this.cursor);
    this.resetButton.hidden = from <= 0 && to >= 1;
    this.cursor.hidden = this.cursorLabel.hidden = true;
  }

  /** A line under the pointer, with its time on the axis. */
  point(event) {
    const box = this.axis.getBoundingClientRect();
    const part = event ? (event.clientX - box.left) / box.width : -1;
    this.cursor.hidden = this.cursorLabel.hidden = part < 0 || part > 1;
    if (this.cursor.hidden) return;
    const [from, to] = this.range;
    this.cursor.style.left = this.cursorLabel.style.left = share(part);
    this.cursorLabel.classList.toggle("rtv-late", (1 - part) * box.width < TICK_WIDTH);
    this.cursorLabel.textContent = duration(Number(((from + part * (to - from)) * this.trace.extent).toPrecision(4)));
  }

  // -- range

  zoomTo(from, to) {
    const width = Math.min(1, Math.max(MIN_ZOOM, to - from));
    const start = Math.min(1 - width, Math.max(0, from));
    this.range = [start, start + width];
    this.map.move();
    this.drawAxis();
    this.rows.redraw();
  }

  zoomBy(factor, centre = (this.range[0] + this.range[1]) / 2) {
    const [from, to] = this.range;
    this.zoomTo(centre - (centre - from) * factor, centre + (to - centre) * factor);
  }

  pan(parts) {
    const step = (this.range[1] - this.range[0]) * parts;
    this.zoomTo(this.range[0] + step, this.range[1] + step);
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) {
      if (Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      this.pan(event.deltaX / 1000);
      return;
    }
    event.preventDefault();
    const box = this.axis.getBoundingClientRect();
    const at = this.range[0] + ((event.clientX - box.left) / box.width) * (this.range[1] - this.range[0]);
    this.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, at);
  }

  dragAxis(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    const box = this.axis.getBoundingClientRect();
    const at = (next) => Math.min(1, Math.max(0, (next.clientX - box.left) / box.width));
    const origin = at(event);
    const band = h("div", {class: "map-drag"});
    this.axis.append(band);
    const move = (next) => stretch(band, Math.min(origin, at(next)), Math.max(origin, at(next)));
    this.axis.setPointerCapture(event.pointerId);
    this.axis.addEventListener("pointermove", move);
    this.axis.addEventListener(
      "pointerup",
      (last) => {
        this.axis.removeEventListener("pointermove", move);
        band.remove();
        const [from, to] = this.range;
        const [a, b] = [Math.min(origin, at(last)), Math.max(origin, at(last))];
        if (b - a > 0.004) this.zoomTo(from + a * (to - from), from + b * (to - from));
      },
      {once: true},
    );
  }

  setSplit(value) {
    this.split = Math.min(75, Math.max(15, value));
    this.viewer.split = this.split;
    this.splitter.setAttribute("aria-valuenow", String(Math.round(this.split)));
    this.layout();
  }

  /** The chosen share for the name column, or more where that would be too narrow to read a name. */
  layout() {
    const width = this.rows.element.clientWidth;
    const least = width ? Math.min(0.5, MIN_NAME_WIDTH / width) : 0;
    const part = Math.max(this.split / 100, least);
    this.element.style.setProperty("--rtv-name-width", share(part));
    this.element.style.setProperty("--rtv-name-part", String(part));
    this.drawAxis();
  }

  dragSplitter(event) {
    event.preventDefault();
    const box = this.rows.element.getBoundingClientRect();
    const move = (next) => this.setSplit(((next.clientX - box.left) / box.width) * 100);
    this.splitter.setPointerCapture(event.pointerId);
    this.splitter.addEventListener("pointermove", move);
    this.splitter.addEventListener("pointerup", () => this.splitter.removeEventListener("pointermove", move), {
      once: true,
    });
  }

  keySplitter(event) {
    const step = {ArrowLeft: -2, ArrowRight: 2}[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    this.setSplit(this.split + step);
  }

  // -- selection

  click(event) {
    const index = indexOf(event);
    if (index < 0) return;
    const span = this.visible[index];
    if (event.target.closest(".rtv-toggle-tree") && span.children.length) this.toggle(span);
    else this.select(span.key);
  }

  select(key, {reveal = false, open = true} = {}) {
    const span = this.trace.order.find((item) => item.key === key || item.id === key);
    if (!span) return false;
    for (let parent = span.parent; parent; parent = parent.parent) this.collapsed.delete(parent.key);
    if (this.tab !== "timeline") this.showTab("timeline");
    this.selected = span.key;
    this.refilter();
    this.rows[reveal ? "center" : "reveal"](this.visible.indexOf(span));
    if (reveal) this.panTo(span);
    this.mark();
    if (open) this.openDetail(span);
    this.viewer.selected(this.trace, span);
    return true;
  }

  openDetail(span) {
    this.detail.hidden = false;
    this.detail.replaceChildren(spanDetail(this, span));
    this.detail.scrollTop = 0;
    this.rows.reveal(this.visible.indexOf(span));
  }

  closeDetail() {
    this.detail.hidden = true;
    this.rows.element.focus({preventScroll: true});
  }

  toggle(span, shut = !this.collapsed.has(span.key)) {
    if (shut) this.collapsed.add(span.key);
    else this.collapsed.delete(span.key);
    this.refilter();
  }

  expandAll() {
    this.collapsed.clear();
    this.refilter();
  }

  collapseAll() {
    for (const span of this.trace.order) if (span.children.length && span.depth > 0) this.collapsed.add(span.key);
    this.refilter();
  }

  // -- find

  setFind(text) {
    this.findBox.value = text;
    this.find(text);
    this.step(1);
  }

  find(text) {
    this.query = text;
    const wanted = text.trim().toLowerCase();
    this.found = wanted ? this.trace.order.filter((span) => haystack(span).includes(wanted)) : [];
    this.matches = new Set(this.found.map((span) => span.key));
    this.at = -1;
    this.countMatches(wanted);
    this.map.paint();
    this.rows.redraw();
  }

  countMatches(wanted = this.query.trim()) {
    const total = this.found?.length ?? 0;
    this.findCount.textContent = !wanted
      ? ""
      : total === 0
        ? "no match"
        : this.at < 0
          ? `${total}`
          : `${this.at + 1} of ${total}`;
    this.findCount.classList.toggle("rtv-bad", Boolean(wanted) && total === 0);
  }

  step(direction) {
    if (!this.found?.length) return;
    this.at =
      this.at < 0 && direction < 0
        ? this.found.length - 1
        : (this.at + direction + this.found.length) % this.found.length;
    this.countMatches();
    this.select(this.found[this.at].key, {reveal: true, open: !this.detail.hidden});
  }

  findKey(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this.findBox.value = "";
      this.find("");
      this.rows.element.focus({preventScroll: true});
    }
  }

  toggleCritical() {
    this.showCritical = !this.showCritical;
    this.criticalButton.setAttribute("aria-pressed", String(this.showCritical));
    this.map.paint();
    this.rows.redraw();
  }

  toggleAdjust() {
    this.viewer.showParsed(parseTrace(this.trace.raw, {adjust: !this.trace.adjust}), {span: this.selected});
  }

  // -- keys

  move(step) {
    const now = this.visible.findIndex((span) => span.key === this.selected);
    const next = Math.min(this.visible.length - 1, Math.max(0, now < 0 ? 0 : now + step));
    if (this.visible[next]) this.select(this.visible[next].key, {open: !this.detail.hidden});
  }

  arrow(direction) {
    const span = this.visible.find((item) => item.key === this.selected);
    if (!span) return this.move(0);
    const shut = this.collapsed.has(span.key);
    if (direction > 0 && shut) return this.toggle(span, false);
    if (direction > 0) return span.children[0] && this.select(span.children[0].key, {open: !this.detail.hidden});
    if (span.children.length && !shut) return this.toggle(span, true);
    return span.parent && this.select(span.parent.key, {open: !this.detail.hidden});
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.rows.element.clientHeight / ROW_HEIGHT) - 1);
    const onTree = this.tab === "timeline";
    const actions = {
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      j: () => this.move(1),
      k: () => this.move(-1),
      PageDown: () => this.move(page),
      PageUp: () => this.move(-page),
      Home: () => this.move(-Infinity),
      End: () => this.move(Infinity),
      ArrowRight: () => (event.shiftKey ? this.pan(0.2) : this.arrow(1)),
      ArrowLeft: () => (event.shiftKey ? this.pan(-0.2) : this.arrow(-1)),
      e: () => this.expandAll(),
      E: () => this.collapseAll(),
      "+": () => this.zoomBy(0.6),
      "=": () => this.zoomBy(0.6),
      "-": () => this.zoomBy(1 / 0.6),
      0: () => this.zoomTo(0, 1),
      z: () => this.zoomToSelected(),
      n: () => this.step(1),
      N: () => this.step(-1),
      c: () => this.toggleCritical(),
    };
    const anywhere = {
      "/": () => this.findBox.focus(),
      s: () => this.showTab(onTree ? "statistics" : "timeline"),
      b: () => this.viewer.showList(),
      Escape: () => (this.detail.hidden ? this.viewer.showList() : this.closeDetail()),
    };
    if (event.key === "Enter" && onTree && event.target === this.rows.element) {
      const span = this.visible.find((item) => item.key === this.selected);
      if (span) this.openDetail(span);
      return Boolean(span);
    }
    const action = anywhere[event.key] ?? (onTree ? actions[event.key] : undefined);
    action?.();
    return Boolean(action);
  }

  /** Move the range, without changing its width, to where a span outside of it can be seen. */
  panTo(span) {
    const [from, to] = this.range;
    const start = (span.start - this.trace.start) / this.trace.extent;
    const end = start + span.duration / this.trace.extent;
    if (end >= from && start <= to) return;
    const width = to - from;
    // The middle of the range for a span that fits, else its start, a little in from the edge.
    const left = end - start < width ? (start + end - width) / 2 : start - width * 0.05;
    this.zoomTo(left, left + width);
  }

  zoomToSelected() {
    const span = this.trace.order.find((item) => item.key === this.selected);
    if (!span) return;
    const from = (span.start - this.trace.start) / this.trace.extent;
    const width = span.duration / this.trace.extent;
    this.zoomTo(from - width * 0.05, from + width * 1.05);
  }

  themed() {
    this.map.paint();
  }

  destroy() {
    this.rows.destroy();
    this.map.destroy();
    this.watch.disconnect();
  }
}

function joinClose(sections, gap) {
  const joined = [];
  for (const [from, to] of sections) {
    const last = joined[joined.length - 1];
    if (last && from - last[1] < gap) last[1] = Math.max(last[1], to);
    else joined.push([from, to]);
  }
  return joined;
}

/** What find looks through: names, ids, and every attribute and event field as key=value. */
function haystack(span) {
  if (span.haystack === undefined) {
    const texts = [span.op, span.service, span.id, span.kind, ...span.warnings];
    const add = (tag) =>
      texts.push(`${tag.key}=${typeof tag.value === "object" ? JSON.stringify(tag.value) : tag.value}`);
    span.tags.forEach(add);
    span.processTags.forEach(add);
    span.logs.forEach((log) => log.fields.forEach(add));
    span.haystack = texts.join("\n").toLowerCase();
  }
  return span.haystack;
}

function statisticsTable(viewer, traces, onpick) {
  const rows = hopStatistics(traces);
  const time = (key, label, title) => ({key, label, title, number: true, text: (row) => duration(row[key])});
  return sortableTable({
    label: "Statistics per hop",
    rows,
    sortBy: "critical",
    onpick,
    columns: [
      {key: "op", label: "Hop", cell: (row) => hopLabel(viewer, row)},
      {key: "count", label: "Count", number: true, text: (row) => row.count.toLocaleString("en")},
      time("min", "Min"),
      time("p50", "p50"),
      time("p95", "p95"),
      time("max", "Max"),
      time("mean", "Mean"),
      time("total", "Total"),
      time("self", "Self", "Total time not spent in children"),
      time("critical", "Critical", "Time on the critical path"),
      {
        key: "share",
        label: "Share",
        number: true,
        title: "Part of all trace time spent on the critical path in this hop",
        cell: (row) =>
          h(
            "span",
            {class: "share"},
            h("i", {style: {width: `${Math.min(100, row.share * 100)}%`, background: viewer.colour(row.service)}}),
            h("span", null, percent(row.share)),
          ),
      },
      {
        key: "errors",
        label: "Errors",
        number: true,
        cell: (row) => (row.errors ? h("span", {class: "bad"}, String(row.errors)) : h("span", {class: "muted"}, "0")),
      },
    ],
  });
}

// ---- many traces ---------------------------------------------------------------------------------------------------

/** Latency over time, one dot a trace; a click opens it. The list below is the same thing for the keyboard. */
class Scatter {
  constructor(viewer) {
    this.viewer = viewer;
    this.traces = [];
    this.tip = h("div", {class: "tip", hidden: true});
    this.plot = svg("svg", {
      class: "plot",
      role: "img",
      "aria-label": "Trace duration over start time; the list below " + "holds the same traces",
    });
    this.element = h("div", {class: "scatter"}, this.plot, this.tip);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.element);
  }

  scales(width, height) {
    const pad = {left: 64, right: 16, top: 12, bottom: 24};
    const starts = this.traces.map((trace) => trace.start);
    const values = this.traces.map((trace) => Math.max(1, trace.duration));
    const bounds = (list) =>
      list.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    let [t0, t1] = bounds(starts);
    if (t1 - t0 < 1000) [t0, t1] = [t0 - 5e5, t1 + 5e5];
    let [low, high] = bounds(values);
    const log = high / low > 20;
    [low, high] = log ? [low / 1.6, high * 1.6] : [0, high * 1.15];
    const y = (value) => (log ? Math.log(Math.max(1, value) / low) / Math.log(high / low) : value / high);
    const steps = high / low > 200 ? [1] : [1, 2, 5];
    const marks = log
      ? Array.from({length: 12}, (_, power) => steps.map((step) => step * 10 ** power))
          .flat()
          .filter((value) => value >= low && value <= high)
      : ticks(0, high, 5).slice(1);
    return {
      pad,
      t0,
      t1,
      marks,
      x: (time) => pad.left + ((time - t0) / (t1 - t0)) * (width - pad.left - pad.right),
      y: (value) => height - pad.bottom - y(value) * (height - pad.top - pad.bottom),
    };
  }

  draw() {
    const {clientWidth: width, clientHeight: height} = this.element;
    if (!width || !this.traces.length) return this.plot.replaceChildren();
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const {pad, t0, t1, marks, x, y} = this.scales(width, height);
    const grid = marks.map((value) => [
      svg("line", {class: "grid-line", x1: pad.left, x2: width - pad.right, y1: y(value), y2: y(value)}),
      svg("text", {class: "axis-text", x: pad.left - 8, y: y(value) + 4, "text-anchor": "end"}, duration(value)),
    ]);
    const count = Math.max(2, Math.floor(width / 220));
    const times = Array.from({length: count}, (_, i) => t0 + ((t1 - t0) * i) / (count - 1)).map((time, i) =>
      svg(
        "text",
        {
          class: "axis-text",
          x: x(time),
          y: height - 6,
          "text-anchor": i === 0 ? "start" : i === count - 1 ? "end" : "middle",
        },
        t1 - t0 > 1e7 ? clock(time, false).slice(0, -4) : clock(time, false),
      ),
    );
    const dots = this.traces.map((trace) =>
      svg("circle", {
        class: `dot-trace ${trace.errors ? "dot-error" : ""} ${this.viewer.marked.has(trace.id) ? "dot-marked" : ""}`,
        cx: x(trace.start),
        cy: y(trace.duration),
        r: Math.min(9, 3.5 + Math.log2(1 + trace.spans.length) / 2.2),
        "data-trace": trace.id,
        style: {fill: trace.root ? this.viewer.colour(trace.root.service) : ""},
        onclick: () => this.viewer.showTrace(trace.id),
        onpointerenter: (event) => this.hover(trace, event.target),
        onpointerleave: () => this.hover(null),
      }),
    );
    return this.plot.replaceChildren(...grid.flat(), ...times, ...dots);
  }

  hover(trace, dot) {
    this.tip.hidden = !trace;
    if (!trace) return;
    this.tip.replaceChildren(
      h("b", null, headline(trace)),
      h(
        "span",
        null,
        `${duration(trace.duration)} · ${plural(trace.spans.length, "span")}` +
          (trace.errors ? ` · ${plural(trace.errors, "error")}` : ""),
      ),
      h("span", {class: "muted"}, clock(trace.start)),
    );
    const [cx, cy] = [Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy"))];
    const left = cx > this.element.clientWidth * 0.6;
    this.tip.style.left = left ? "" : `${cx + 14}px`;
    this.tip.style.right = left ? `${this.element.clientWidth - cx + 14}px` : "";
    this.tip.style.top = `${Math.max(4, Math.min(cy - 20, this.element.clientHeight - 76))}px`;
  }

  destroy() {
    this.watch.disconnect();
  }
}

const SORTS = {
  recent: ["Most recent", (a, b) => b.start - a.start],
  longest: ["Longest first", (a, b) => b.duration - a.duration],
  shortest: ["Shortest first", (a, b) => a.duration - b.duration],
  spans: ["Most spans", (a, b) => b.spans.length - a.spans.length],
  errors: ["Most errors", (a, b) => b.errors - a.errors || b.start - a.start],
};

class ListView extends View {
  constructor(viewer) {
    super();
    this.viewer = viewer;
    this.tab = "traces";
    this.current = 0;
    this.scatter = new Scatter(viewer);
    this.rows = new Rows({
      height: CARD_HEIGHT,
      create: () => this.createCard(),
      update: (row, index) => this.updateCard(row, this.shown[index], index),
      class: "cards",
      role: "listbox",
      tabindex: "0",
      "aria-label": "Traces",
      onclick: (event) => this.click(event),
    });
    this.build();
    this.refresh();
  }

  build() {
    const search = this.viewer.search;
    const input = (name, props) =>
      h("input", {class: "input", value: search[name], name, autocomplete: "off", ...props});
    this.service = select([], "", {name: "service", onchange: () => this.pickService()});
    this.operation = select([], "", {name: "operation"});
    this.errors = h("input", {type: "checkbox", name: "errors", checked: search.errors});
    this.errors.checked = search.errors;
    this.problem = h("p", {class: "form-problem", role: "alert", hidden: true});
    const live = !this.viewer.api;
    this.form = h(
      "form",
      {
        class: "search",
        "aria-label": "Search traces",
        onsubmit: (event) => {
          event.preventDefault();
          this.submit();
        },
        oninput: live ? () => this.submit() : null,
      },
      field("Service", this.service),
      field("Operation", this.operation),
      field("Tags", input("tags", {placeholder: "kafka.topic=orders"})),
      h(
        "div",
        {class: "pair"},
        field("Min duration", input("min", {placeholder: "1.5ms"})),
        field("Max duration", input("max", {placeholder: "2s"})),
      ),
      !live &&
        h(
          "div",
          {class: "pair"},
          field("Time range", select(LOOKBACKS, search.lookback, {name: "lookback"})),
          field("Limit", input("limit", {type: "number", min: "1", max: "1500"})),
        ),
      h("label", {class: "check"}, this.errors, "Only traces with errors"),
      this.problem,
      h(
        "div",
        {class: "actions"},
        !live && h("button", {type: "submit", class: "btn btn-primary"}, icon("search"), "Search"),
        button("Clear", {onclick: () => this.clear()}),
      ),
    );
    this.buildTabs({traces: "Traces", statistics: "Statistics"});
    this.summary = h("span", {class: "muted", role: "status"});
    this.sort = select(
      Object.entries(SORTS).map(([key, [label]]) => [key, label]),
      this.viewer.sort,
      {
        "aria-label": "Order of the traces",
        onchange: () => {
          this.viewer.sort = this.sort.value;
          this.filter();
        },
      },
    );
    this.compareButton = button("Compare", {symbol: "compare", onclick: () => this.viewer.compareMarked()});
    this.panel = h("div", {class: "panel"});
    this.notes = h("div", {class: "notes", role: "status"});
    this.buildNotes();
    this.element = h(
      "section",
      {class: "list-view", "aria-label": "Traces"},
      h("aside", {class: "side"}, this.form),
      h(
        "div",
        {class: "results"},
        h(
          "div",
          {class: "tool-line"},
          h("div", {class: "tabs", role: "tablist", "aria-label": "Views of the traces"}, this.tabs),
          this.summary,
          h("span", {class: "grow"}),
          this.compareButton,
          this.sort,
        ),
        this.notes,
        this.panel,
      ),
    );
  }

  /** What is not in the list, and nobody would miss: spans that never came to the store. */
  buildNotes() {
    const {dropped, rejected} = this.viewer.losses;
    const note = (count, text) =>
      count > 0 &&
      h("div", {class: "notice notice-warn"}, icon("warn"), h("span", null, `${plural(count, "span")} ${text}`));
    const notes = [
      note(
        dropped,
        `${were(dropped)} dropped by recorders: traces may lack them, or be missing. ` +
          "A node made more than it could send; its log says when.",
      ),
      note(
        rejected,
        `${were(rejected)} rejected by the collector, as not valid: traces may lack them. Its log or their sender says why.`,
      ),
    ];
    this.notes.replaceChildren(...notes.filter(Boolean));
  }

  /** The names that the form offers: from the store's API, or from the traces at hand. */
  refresh() {
    const {viewer} = this;
    const loaded = [...viewer.traces.values()];
    const services = viewer.api
      ? viewer.services
      : [...new Set(loaded.flatMap((trace) => [...trace.services.keys()]))].sort();
    const names = viewer.api
      ? viewer.operations
      : [
          ...new Set(
            loaded.flatMap((trace) =>
              trace.spans
                .filter((span) => !viewer.search.service || span.service === viewer.search.service)
                .map((span) => span.op),
            ),
          ),
        ].sort();
    const fill = (control, values, value, all) => {
      const known = values.includes(value) || !value ? values : [value, ...values];
      const options = all ? [["", all], ...known.map((item) => [item, item])] : known.map((item) => [item, item]);
      control.replaceChildren(...options.map(([key, label]) => h("option", {value: key}, label)));
      control.value = value || options[0]?.[0] || "";
    };
    fill(
      this.service,
      services,
      viewer.search.service,
      !viewer.api ? "All services" : services.length ? "" : "No services yet",
    );
    fill(this.operation, names, viewer.search.operation, "All operations");
    this.filter();
  }

  read() {
    const data = new FormData(this.form);
    const text = (name) => String(data.get(name) ?? "");
    const search = {...SEARCH_DEFAULTS};
    for (const name of ["service", "operation", "tags", "min", "max"]) search[name] = text(name);
    if (data.has("lookback")) search.lookback = text("lookback");
    if (data.has("limit")) search.limit = text("limit") || SEARCH_DEFAULTS.limit;
    search.errors = data.has("errors");
    return search;
  }

  check(search) {
    readTags(search.tags);
    for (const [name, label] of [
      ["min", "Min duration"],
      ["max", "Max duration"],
    ]) {
      if (Number.isNaN(readDuration(search[name]))) {
        throw new TraceError(
          `${label}: cannot read "${search[name]}".`,
          "Write a number with a unit: 200us, 1.5ms or 2s.",
        );
      }
    }
  }

  submit() {
    const search = this.read();
    try {
      this.check(search);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this.problem.textContent = `${error.message} ${error.hint}`;
      this.problem.hidden = false;
      return;
    }
    this.problem.hidden = true;
    this.viewer.search = search;
    if (this.viewer.api) this.viewer.runSearch();
    else this.filter();
  }

  pickService() {
    this.viewer.search = {...this.read(), operation: ""};
    if (this.viewer.api) this.viewer.loadOperations();
    else this.refresh();
  }

  clear() {
    const {service} = this.viewer.search;
    this.viewer.search = {...SEARCH_DEFAULTS, service: this.viewer.api ? service : ""};
    for (const name of ["tags", "min", "max"]) this.form.elements[name].value = "";
    for (const name of ["lookback", "limit"])
      if (this.form.elements[name]) this.form.elements[name].value = SEARCH_DEFAULTS[name];
    this.errors.checked = false;
    this.refresh();
    this.submit();
  }

  filter() {
    const {viewer} = this;
    const keep = viewer.api ? (trace) => !viewer.search.errors || trace.errors > 0 : localFilter(viewer.search);
    this.shown = [...viewer.traces.values()].filter(keep).sort(SORTS[viewer.sort][1]);
    this.longest = this.shown.reduce((most, trace) => Math.max(most, trace.duration), 1);
    this.current = Math.min(this.current, Math.max(0, this.shown.length - 1));
    const total = viewer.traces.size;
    this.summary.textContent = viewer.problem
      ? ""
      : this.shown.length === total
        ? plural(total, "trace")
        : `${this.shown.length} of ${plural(total, "trace")}`;
    this.rows.setCount(this.shown.length);
    this.scatter.traces = this.shown;
    this.markChanged();
    this.showTab(this.tab);
  }

  showTab(name) {
    this.markTab(name);
    const state = this.viewer.problem ? this.viewer.problemState() : this.shown.length ? null : this.emptyState();
    if (state) {
      this.panel.replaceChildren(state);
    } else if (name === "statistics") {
      this.panel.replaceChildren(statisticsTable(this.viewer, this.shown, null));
    } else {
      if (this.rows.element.parentNode !== this.panel)
        this.panel.replaceChildren(this.scatter.element, this.rows.element);
      this.scatter.draw();
      this.rows.redraw();
    }
  }

  waiting() {
    if (!this.shown.length) this.showTab(this.tab);
    this.summary.textContent = "Loading";
  }

  emptyState() {
    const {viewer} = this;
    if (viewer.busy) return emptyState({title: "Loading traces", text: "Asking the trace store."});
    const importing = button("Import JSON", {symbol: "import", onclick: () => viewer.pickFile()});
    if (viewer.traces.size || (viewer.api && viewer.services.length)) {
      return emptyState({
        title: "No trace matches",
        text: viewer.api
          ? "Widen the time range, remove a filter, or produce a " + "record and search again."
          : "Remove a filter to see more.",
        actions: [
          button("Clear filters", {onclick: () => this.clear()}),
          viewer.api && button("Search again", {symbol: "refresh", onclick: () => viewer.reload()}),
        ].filter(Boolean),
      });
    }
    if (viewer.api) {
      return emptyState({
        title: "No traces yet",
        text: "The store is running and empty. Produce a record, then refresh:",
        code: "echo hello | kcat -b 127.0.0.1:9092 -t orders -P",
        actions: [
          button("Refresh", {symbol: "refresh", class: "btn-primary", onclick: () => viewer.reload()}),
          importing,
        ],
      });
    }
    return emptyState({
      title: "No traces to show",
      text: "Import a trace in Jaeger's JSON format, or drop a file here.",
      actions: [importing],
    });
  }

  createCard() {
    const row = {
      box: h("input", {
        type: "checkbox",
        tabindex: "-1",
        "aria-label": "Mark to compare",
        title: "Mark to compare (Space)",
      }),
      name: h("b", {class: "card-name"}),
      root: h("span", {class: "muted card-root"}),
      id: h("span", {class: "mono muted"}),
      time: h("span", {class: "muted card-time"}),
      chips: h("div", {class: "card-chips"}),
      bar: h("i", {class: "card-bar"}),
      took: h("span", {class: "card-took"}),
    };
    row.element = h(
      "div",
      {class: "card", role: "option", id: uniqueId("card")},
      row.box,
      h("div", {class: "card-main"}, h("div", {class: "card-title"}, row.name, row.root, row.id), row.chips),
      h("div", {class: "card-side"}, row.took, row.time, h("div", {class: "card-track"}, row.bar)),
    );
    return row;
  }

  updateCard(row, trace, index) {
    const {viewer} = this;
    row.element.className = scoped(`card ${index === this.current ? "sel" : ""}`);
    row.element.setAttribute("aria-selected", String(index === this.current));
    row.element.dataset.trace = trace.id;
    row.box.checked = viewer.marked.has(trace.id);
    row.name.textContent = headline(trace);
    row.root.textContent = trace.root ? `${trace.root.service}: ${trace.root.op}` : "";
    row.id.textContent = shortId(trace.id);
    row.time.textContent = clock(trace.start);
    row.took.textContent = duration(trace.duration);
    row.bar.style.width = `${Math.max(0.5, (trace.duration / this.longest) * 100)}%`;
    row.bar.style.background = trace.root ? viewer.colour(trace.root.service) : "";
    row.chips.replaceChildren(
      h("span", {class: "tag"}, plural(trace.spans.length, "span")),
      trace.errors ? h("span", {class: "tag tag-error"}, plural(trace.errors, "error")) : "",
      ...[...trace.services]
        .slice(0, 6)
        .map(([service, count]) =>
          h(
            "span",
            {class: "service"},
            h("i", {class: "dot", style: {background: viewer.colour(service)}}),
            service,
            h("span", {class: "count"}, String(count)),
          ),
        ),
      ...recordChips(trace.records),
    );
  }

  click(event) {
    const index = indexOf(event);
    if (index < 0) return;
    this.current = index;
    if (event.target.type === "checkbox") this.viewer.mark(this.shown[index].id);
    else this.viewer.showTrace(this.shown[index].id);
  }

  markChanged() {
    const count = this.viewer.marked.size;
    this.compareButton.disabled = count !== 2;
    this.compareButton.title = count === 2 ? "Compare the two marked traces" : "Mark two traces to compare them";
    this.rows.redraw();
    this.scatter.draw();
  }

  move(step) {
    this.current = Math.min(this.shown.length - 1, Math.max(0, this.current + step));
    this.rows.redraw();
    this.rows.reveal(this.current);
    const row = this.rows.live.get(this.current);
    if (row) this.rows.element.setAttribute("aria-activedescendant", row.element.id);
    this.rows.element.focus({preventScroll: true});
  }

  key(event) {
    const trace = this.shown[this.current];
    const actions = {
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      j: () => this.move(1),
      k: () => this.move(-1),
      Home: () => this.move(-Infinity),
      End: () => this.move(Infinity),
      "/": () => this.form.elements.tags.focus(),
      r: () => this.viewer.reload(),
      s: () => this.showTab(this.tab === "traces" ? "statistics" : "traces"),
      " ": () => trace && this.viewer.mark(trace.id),
      m: () => trace && this.viewer.mark(trace.id),
      d: () => this.viewer.compareMarked(),
    };
    if (event.key === "Enter" && trace && event.target === this.rows.element) {
      this.viewer.showTrace(trace.id);
      return true;
    }
    if (event.key === " " && event.target !== this.rows.element) return false;
    actions[event.key]?.();
    return event.key in actions;
  }

  destroy() {
    this.rows.destroy();
    this.scatter.destroy();
  }
}

/** The search form applied to traces at hand, with the meaning that Jaeger's API gives to the fields. */
function localFilter(search) {
  const tags = Object.entries(readTags(search.tags));
  const [min, max] = [readDuration(search.min) ?? 0, readDuration(search.max) ?? Infinity];
  const hasTag = (span, [key, value]) =>
    [...span.tags, ...span.processTags, ...span.logs.flatMap((log) => log.fields)].some(
      (tag) => tag.key === key && String(tag.value) === value,
    );
  return (trace) =>
    (!search.errors || trace.errors > 0) &&
    trace.spans.some(
      (span) =>
        (!search.service || span.service === search.service) &&
        (!search.operation || span.op === search.operation) &&
        span.duration >= min &&
        span.duration <= max &&
        tags.every((tag) => hasTag(span, tag)),
    );
}

// ---- two traces ----------------------------------------------------------------------------------------------------

class CompareView extends View {
  constructor(viewer, a, b) {
    super();
    Object.assign(this, {viewer, a, b, tab: "tree"});
    this.rows = new Rows({
      height: ROW_HEIGHT + 6,
      create: () => this.createRow(),
      update: (row, index) => this.updateRow(row, this.merged[index], index),
      class: "diff",
      role: "tree",
      tabindex: "0",
      "aria-label": "Both traces, merged",
    });
    this.panel = h("div", {class: "panel"});
    this.head = h("div", {class: "trace-head"});
    this.element = h("section", {class: "compare-view", "aria-label": "Compare two traces"}, this.head, this.panel);
    this.refresh();
  }

  picker(side) {
    const chosen = this[side];
    const traces = [...this.viewer.traces.values()].sort(SORTS.recent[1]);
    const control = select(
      [
        ["", "Choose a trace"],
        ...traces.map((trace) => [
          trace.id,
          [shortId(trace.id), headline(trace), duration(trace.duration), clock(trace.start, false)].join("  "),
        ]),
      ],
      chosen?.id ?? "",
      {
        "aria-label": `Trace ${side.toUpperCase()}`,
        onchange: () =>
          this.viewer.showCompare(side === "a" ? control.value : this.a?.id, side === "b" ? control.value : this.b?.id),
      },
    );
    control.value = chosen?.id ?? "";
    return h(
      "div",
      {class: `pick-side side-${side}`},
      h("b", {class: `side-mark mark-${side}`}, side.toUpperCase()),
      control,
      chosen && h("span", {class: "strong"}, duration(chosen.duration)),
      chosen &&
        button(`Open trace ${side.toUpperCase()}`, {text: "Open", onclick: () => this.viewer.showTrace(chosen.id)}),
    );
  }

  refresh() {
    const {a, b} = this;
    const pickers = h(
      "div",
      {class: "pickers"},
      this.picker("a"),
      button("Swap A and B", {symbol: "compare", iconOnly: true, onclick: () => this.viewer.showCompare(b?.id, a?.id)}),
      this.picker("b"),
    );
    if (!a || !b) {
      this.head.replaceChildren(pickers);
      this.panel.replaceChildren(
        emptyState({
          title: "Choose two traces",
          text: "Pick A and B above, or mark two traces in the list.",
          actions: [button("To the list", {onclick: () => this.viewer.showList()})],
        }),
      );
      return;
    }
    this.merged = mergeTraces(a, b);
    this.scale = Math.max(a.extent, b.extent);
    this.most = this.merged.reduce(
      (most, row) => (row.a && row.b ? Math.max(most, Math.abs(row.b.duration - row.a.duration)) : most),
      1,
    );
    const only = (side, other) => this.merged.filter((row) => row[side] && !row[other]).length;
    const delta = b.duration - a.duration;
    const verdict =
      delta === 0
        ? "Both took the same time"
        : `B is ${delta > 0 ? "slower" : "faster"} by ${duration(Math.abs(delta))}` +
          (a.duration ? ` (${delta > 0 ? "+" : "−"}${percent(Math.abs(delta) / a.duration)})` : "");
    const fact = (label, text, cls) =>
      h("div", {class: "fact"}, h("dt", null, label), h("dd", {class: cls ?? ""}, text));
    this.buildTabs({tree: "Structure", hops: "Per hop"});
    this.head.replaceChildren(
      pickers,
      h(
        "div",
        {class: "facts-line"},
        h(
          "dl",
          {class: "strip-facts"},
          fact("Result", verdict, delta > 0 ? "slower" : delta < 0 ? "faster" : ""),
          fact("In both", String(this.merged.filter((row) => row.a && row.b).length)),
          fact("Only in A", String(only("a", "b"))),
          fact("Only in B", String(only("b", "a"))),
          fact("Errors", `${a.errors} / ${b.errors}`, a.errors || b.errors ? "bad" : ""),
        ),
      ),
      h(
        "div",
        {class: "tool-line"},
        h("div", {class: "tabs", role: "tablist", "aria-label": "Views of the comparison"}, this.tabs),
      ),
    );
    this.showTab(this.tab);
  }

  showTab(name) {
    this.markTab(name);
    if (name === "hops") {
      this.panel.replaceChildren(this.hopTable());
      return;
    }
    const side = (letter) => h("b", {class: `side-mark mark-${letter.toLowerCase()}`}, letter);
    this.panel.replaceChildren(
      h(
        "div",
        {class: "diff-head"},
        h("span", null, "Service and operation"),
        h("span", null, "Timeline, A over B"),
        h("span", {class: "num"}, side("A")),
        h("span", {class: "num"}, side("B")),
        h("span", {class: "num"}, "Difference B − A"),
      ),
      this.rows.element,
    );
    this.rows.setCount(this.merged.length);
  }

  createRow() {
    const row = {
      indent: h("span", {class: "indent"}),
      sign: h("span", {class: "sign"}),
      strip: h("i", {class: "strip"}),
      op: h("span", {class: "op"}),
      service: h("span", {class: "svc"}),
      barA: h("i", {class: "twin twin-a"}),
      barB: h("i", {class: "twin twin-b"}),
      a: h("span", {class: "num"}),
      b: h("span", {class: "num"}),
      bar: h("i", {class: "delta-bar"}),
      delta: h("b", {class: "delta"}),
    };
    row.element = h(
      "div",
      {class: "diff-row", role: "treeitem"},
      h("div", {class: "cell-name"}, row.indent, row.sign, row.strip, row.op, row.service),
      h("div", {class: "cell-time"}, row.barA, row.barB),
      row.a,
      row.b,
      h("div", {class: "cell-delta"}, row.bar, row.delta),
    );
    return row;
  }

  updateRow(row, {a, b, depth}) {
    const span = a ?? b;
    const kind = a && b ? "both" : a ? "only-a" : "only-b";
    const delta = a && b ? b.duration - a.duration : null;
    row.element.className = scoped(`diff-row ${kind} ${delta > 0 ? "slower" : delta < 0 ? "faster" : ""}`);
    row.element.setAttribute("aria-level", String(depth + 1));
    row.element.setAttribute(
      "aria-label",
      `${span.op}, ${span.service}, ${
        kind === "both"
          ? `A ${duration(a.duration)}, B ` + `${duration(b.duration)}, difference ${signed(delta)}`
          : kind === "only-a"
            ? "only in A"
            : "only in B"
      }`,
    );
    row.element.style.setProperty("--rtv-span", this.viewer.colour(span.service));
    indentTo(row.indent, depth);
    row.sign.textContent = kind === "both" ? "" : kind === "only-a" ? "−" : "+";
    row.op.textContent = span.op;
    row.service.textContent = span.service;
    for (const [bar, item, trace] of [
      [row.barA, a, this.a],
      [row.barB, b, this.b],
    ]) {
      bar.hidden = !item;
      if (!item) continue;
      const from = (item.start - trace.start) / this.scale;
      stretch(bar, from, from + item.duration / this.scale);
    }
    row.a.textContent = a ? duration(a.duration) : "–";
    row.b.textContent = b ? duration(b.duration) : "–";
    row.delta.textContent =
      kind === "both" ? (delta === 0 ? "0" : signed(delta)) : kind === "only-a" ? "only in A" : "only in B";
    row.bar.style.width = delta ? `${Math.max(1, (Math.abs(delta) / this.most) * 28)}%` : "0"; // 28 %: one side's room
  }

  hopTable() {
    const time = (key, label, title) => ({key, label, title, number: true, text: (row) => duration(row[key])});
    const change = (key, label, title) => ({
      key,
      label,
      title,
      number: true,
      value: (row) => Math.abs(row[key]),
      cell: (row) =>
        h(
          "b",
          {class: row[key] > 0 ? "slower" : row[key] < 0 ? "faster" : "muted"},
          row[key] === 0 ? "0" : signed(row[key]),
        ),
    });
    return sortableTable({
      label: "Differences per hop",
      rows: compareHops(this.a, this.b),
      sortBy: "selfDelta",
      columns: [
        {key: "op", label: "Hop", cell: (row) => hopLabel(this.viewer, row)},
        {key: "countA", label: "Count A", number: true, text: (row) => String(row.countA)},
        {key: "countB", label: "Count B", number: true, text: (row) => String(row.countB)},
        time("meanA", "Mean A"),
        time("meanB", "Mean B"),
        change("delta", "Δ total", "Total time in B minus total time in A"),
        time("selfA", "Self A"),
        time("selfB", "Self B"),
        change("selfDelta", "Δ self", "Time not spent in children, B minus A: where the difference really arose"),
      ],
    });
  }

  key(event) {
    const actions = {
      s: () => this.tabs && this.showTab(this.tab === "tree" ? "hops" : "tree"),
      b: () => this.viewer.showList(),
      Escape: () => this.viewer.showList(),
      w: () => this.viewer.showCompare(this.b?.id, this.a?.id),
    };
    actions[event.key]?.();
    return event.key in actions;
  }

  destroy() {
    this.rows.destroy();
  }
}

// ---- the store's API -----------------------------------------------------------------------------------------------

const NO_LOSSES = {dropped: 0, rejected: 0};
const LOOK_AGAIN_MS = 2000;

/** Jaeger's query API v1. Every failure becomes a TraceError that says what to do next. */
class Api {
  constructor(base) {
    this.base = base.replace(/\/+$/, "");
  }

  async get(path, params = {}) {
    const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== null));
    const url = `${this.base}${path}${query.size ? `?${query}` : ""}`;
    const where = this.base || window.location.origin;
    let response;
    try {
      response = await fetch(url, {headers: {accept: "application/json"}});
    } catch {
      throw new TraceError(
        `Cannot reach the trace store at ${where}.`,
        "Check that the collector runs (start it with: python -m traces, or restart the lab), then try again.",
      );
    }
    let body;
    try {
      body = await response.json();
    } catch {
      throw new TraceError(
        `${where}${path} answered ${response.status} without JSON.`,
        "Check that this address is a Jaeger query API.",
      );
    }
    if (response.status === 404) throw new TraceError("not found");
    if (!response.ok) {
      const said = body?.errors?.[0]?.msg ?? response.statusText;
      throw new TraceError(
        `The trace store refused the request (${response.status}): ${said}`,
        "Change the search and try again.",
      );
    }
    return body?.data ?? [];
  }

  services() {
    return this.get("/api/services");
  }

  /** How many spans never came to the store, as far as it knows; a Jaeger has no such counts. */
  async losses() {
    try {
      const response = await fetch(`${this.base}/api/stats`, {headers: {accept: "application/json"}});
      const {dropped = 0, rejected = 0} = response.ok ? await response.json() : {};
      return {dropped, rejected};
    } catch {
      return NO_LOSSES;
    }
  }

  operations(service) {
    return this.get(`/api/services/${encodeURIComponent(service)}/operations`);
  }

  async trace(id) {
    try {
      return readTraces(await this.get(`/api/traces/${encodeURIComponent(id)}`))[0] ?? null;
    } catch (error) {
      if (error.message === "not found") return null;
      throw error;
    }
  }

  async search(search) {
    const seconds = LOOKBACKS.find(([key]) => key === search.lookback)?.[2] ?? 3600;
    const now = Date.now() * 1000;
    const tags = readTags(search.tags);
    if (search.errors) tags.error = "true";
    const micros = (text) => (readDuration(text) === null ? "" : `${readDuration(text)}us`);
    return readTraces(
      await this.get("/api/traces", {
        service: search.service,
        operation: search.operation,
        limit: search.limit,
        tags: Object.keys(tags).length ? JSON.stringify(tags) : "",
        minDuration: micros(search.min),
        maxDuration: micros(search.max),
        lookback: seconds ? search.lookback : "",
        start: seconds ? now - seconds * 1e6 : 1,
        end: now,
      }),
    );
  }
}

// ---- the whole -----------------------------------------------------------------------------------------------------

const HELP = [
  [
    "Trace",
    [
      ["↑ ↓ or k j", "previous or next span"],
      ["← →", "collapse or expand, parent or child"],
      ["Enter", "show details"],
      ["e, Shift+E", "expand or collapse all"],
      ["c", "critical path on or off"],
      ["s", "timeline or statistics"],
    ],
  ],
  [
    "Time range",
    [
      ["+ −", "zoom in or out"],
      ["z", "zoom to the selected span"],
      ["0", "show the whole trace"],
      ["Shift+← →", "move the range"],
      ["Ctrl+wheel", "zoom at the pointer"],
    ],
  ],
  [
    "Find",
    [
      ["/", "find in trace, or filter the list"],
      ["n, Shift+N", "next or previous match"],
      ["Esc", "clear, close or go back"],
    ],
  ],
  [
    "Traces",
    [
      ["↑ ↓ Enter", "choose and open a trace"],
      ["Space or m", "mark to compare"],
      ["d", "compare the marked traces"],
      ["w", "swap A and B"],
      ["r", "search again"],
      ["b", "back to the list"],
    ],
  ],
  [
    "Anywhere",
    [
      ["x", "export as Jaeger JSON"],
      ["i", "import JSON"],
      ["t", "light or dark"],
      ["?", "this help"],
    ],
  ],
];

class Viewer {
  constructor(host, options) {
    this.options = options;
    this.api = options.api === undefined || options.api === null ? null : new Api(options.api);
    Object.assign(this, {
      traces: new Map(),
      services: [],
      operations: [],
      marked: new Set(),
      colours: new Map(),
      search: {...SEARCH_DEFAULTS},
      sort: "recent",
      busy: false,
      problem: null,
      losses: NO_LOSSES,
      view: null,
      route: 0,
    });
    this.cleanups = [];
    this.buildFrame(host);
    this.watchTheme(options.theme ?? "auto");
    this.start();
  }

  buildFrame(host) {
    this.crumbs = h("nav", {class: "crumbs", "aria-label": "Place"});
    this.file = h("input", {
      type: "file",
      accept: ".json,application/json",
      hidden: true,
      multiple: true,
      "aria-label": "Trace file",
      onchange: () => this.importFiles([...this.file.files]),
    });
    this.exportButton = button("Export as Jaeger JSON (x)", {
      symbol: "export",
      text: "Export",
      onclick: () => this.exportShown(),
    });
    this.compareButton = button("Compare two traces", {
      symbol: "compare",
      text: "Compare",
      onclick: () => this.compareFromHere(),
    });
    this.themeButton = button("Light or dark (t)", {
      symbol: "theme",
      iconOnly: true,
      onclick: () => this.toggleTheme(),
    });
    this.toast = h("div", {class: "toast", role: "status", "aria-live": "polite"});
    this.body = h("main", {class: "body"});
    this.help = this.buildHelp();
    this.element = h(
      "div",
      {
        class: "root",
        tabindex: "-1",
        "data-lm-suppress-shortcuts": "true",
        ondragover: (event) => event.preventDefault(),
        ondrop: (event) => {
          event.preventDefault();
          this.importFiles([...event.dataTransfer.files]);
        },
      },
      h(
        "header",
        {class: "top"},
        h("span", {class: "brand"}, icon("logo"), "Traces"),
        this.crumbs,
        h("span", {class: "grow"}),
        button("Import Jaeger JSON (i)", {symbol: "import", text: "Import", onclick: () => this.pickFile()}),
        this.exportButton,
        this.compareButton,
        this.themeButton,
        h(
          "button",
          {
            type: "button",
            class: "btn btn-icon",
            title: "Keyboard shortcuts (?)",
            "aria-label": "Keyboard shortcuts",
            onclick: () => this.help.showModal(),
          },
          "?",
        ),
      ),
      this.body,
      this.toast,
      this.file,
      this.help,
    );
    this.element.classList.add("rtv");
    // A page of its own takes keys wherever the focus is; beside other things only its own.
    const target = this.options.hash ? document : this.element;
    const onKey = (event) => this.key(event);
    target.addEventListener("keydown", onKey);
    this.cleanups.push(() => target.removeEventListener("keydown", onKey));
    host.append(this.element);
  }

  buildHelp() {
    const close = button("Close", {symbol: "close", iconOnly: true, onclick: () => this.help.close()});
    return h(
      "dialog",
      {
        class: "help",
        "aria-label": "Keyboard shortcuts",
        onclick: (event) => {
          if (event.target === this.help) this.help.close();
        },
      },
      h(
        "div",
        {class: "help-body"},
        h("header", null, h("h2", null, "Keyboard shortcuts"), close),
        h(
          "div",
          {class: "help-groups"},
          HELP.map(([title, keys]) =>
            h(
              "section",
              null,
              h("h3", null, title),
              h(
                "dl",
                null,
                keys.map(([key, text]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, text))),
              ),
            ),
          ),
        ),
      ),
    );
  }

  // -- start and places

  start() {
    const {traces = [], mode, traceId} = this.options;
    try {
      this.addTraces(traces);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this.showProblem(error, () => this.showList());
      return;
    }
    if (this.options.hash) {
      const follow = () => this.followHash();
      window.addEventListener("popstate", follow);
      window.addEventListener("hashchange", follow);
      this.cleanups.push(() => {
        window.removeEventListener("popstate", follow);
        window.removeEventListener("hashchange", follow);
      });
      this.followHash();
      return;
    }
    const ids = [...this.traces.keys()];
    if (mode === "compare")
      this.showCompare(
        traceId ?? ids[0],
        ids.find((id) => id !== (traceId ?? ids[0])),
      );
    else if (traceId || mode === "trace" || (mode === undefined && ids.length === 1)) this.showTrace(traceId ?? ids[0]);
    else this.showList();
  }

  followHash() {
    const [path, query = ""] = window.location.hash.replace(/^#/, "").split("?");
    const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
    const params = new URLSearchParams(query);
    if (parts[0] === "trace" && parts[1]) return this.showTrace(parts[1], {span: params.get("span"), push: false});
    if (parts[0] === "compare") return this.showCompare(parts[1], parts[2], {push: false});
    for (const name of Object.keys(SEARCH_DEFAULTS)) {
      if (params.has(name)) this.search[name] = name === "errors" ? params.get(name) === "true" : params.get(name);
    }
    if (params.has("sort") && SORTS[params.get("sort")]) this.sort = params.get("sort");
    this.showList({push: false});
    return this.reload();
  }

  goTo(path, params = {}, replace = false) {
    if (!this.options.hash) return;
    const query = new URLSearchParams(
      Object.entries(params).filter(([name, value]) => value && value !== SEARCH_DEFAULTS[name]),
    );
    const hash = `#/${path}${query.size ? `?${query}` : ""}`;
    if (hash === window.location.hash) return;
    window.history[replace ? "replaceState" : "pushState"](null, "", hash);
  }

  show(view, crumbs) {
    const focused = this.element.contains(document.activeElement);
    this.view?.destroy();
    this.view = view;
    this.body.replaceChildren(view.element ?? view);
    this.crumbs.replaceChildren(...crumbs);
    this.compareButton.hidden = !(view instanceof TraceView); // the list and the comparison have their own
    if (focused || this.options.hash) view.focus?.();
  }

  state(state) {
    return {
      element: emptyState(state),
      key: (event) => event.key === "b" && this.showList(),
      destroy() {},
      themed() {},
    };
  }

  backCrumb() {
    const only = this.traces.size <= 1 && !this.api;
    return only
      ? []
      : [
          h(
            "button",
            {type: "button", class: "linklike", title: "Back to the list (b)", onclick: () => this.showList()},
            icon("back"),
            "All traces",
          ),
        ];
  }

  showList({push = true} = {}) {
    this.route += 1;
    if (this.traces.size === 1 && !this.api && this.view instanceof TraceView) return;
    this.show(new ListView(this), []);
    if (push) this.goTo("search", this.search);
    if (push && this.api && !this.loaded) this.reload();
  }

  async showTrace(id, {span = null, push = true} = {}) {
    const route = (this.route += 1);
    const wanted = normalId(id);
    if (push && id) this.goTo(`trace/${encodeURIComponent(id)}`, {span});
    let trace = [...this.traces.values()].find((item) => normalId(item.id) === wanted);
    if (!trace && this.api && id) {
      this.show(this.state({title: "Loading trace", text: id}), this.backCrumb());
      try {
        const raw = await this.api.trace(id);
        trace = raw && this.parse(raw);
      } catch (error) {
        if (!(error instanceof TraceError)) throw error;
        if (route === this.route) this.showProblem(error, () => this.showTrace(id, {span, push: false}));
        return false;
      }
      if (route !== this.route) return false;
    }
    if (!trace) {
      this.show(
        this.state({
          kind: "error",
          title: id ? "Trace not found" : "No trace to show",
          text: id
            ? `${id} is not in the store. It may have expired, or its spans are still on the way: retry in a second.`
            : "Import a trace in Jaeger's JSON format, or drop a file here.",
          actions: [
            id &&
              this.api &&
              button("Retry", {symbol: "refresh", onclick: () => this.showTrace(id, {span, push: false})}),
            button("Import JSON", {symbol: "import", onclick: () => this.pickFile()}),
            button("All traces", {onclick: () => this.showList()}),
          ].filter(Boolean),
        }),
        this.backCrumb(),
      );
      return false;
    }
    return this.showParsed(trace, {span});
  }

  showParsed(trace, {span}) {
    this.nameColours([trace]);
    this.show(new TraceView(this, trace, {span}), [
      ...this.backCrumb(),
      h("span", {class: "crumb"}, shortId(trace.id)),
    ]);
    return true;
  }

  showProblem(error, retry) {
    this.show(
      this.state({
        kind: "error",
        title: error.message,
        text: error.hint,
        actions: [button("Retry", {symbol: "refresh", class: "btn-primary", onclick: retry})],
      }),
      this.backCrumb(),
    );
  }

  async showCompare(first, second, {push = true} = {}) {
    const route = (this.route += 1);
    if (push) this.goTo(["compare", first, second].filter(Boolean).map(encodeURIComponent).join("/"));
    try {
      await Promise.all(
        [first, second]
          .filter((id) => id && !this.has(id) && this.api)
          .map(async (id) => {
            const raw = await this.api.trace(id);
            if (raw) this.addTraces([raw]);
            else this.say(`Trace ${id} is not in the store.`);
          }),
      );
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this.showProblem(error, () => this.showCompare(first, second, {push: false}));
      return;
    }
    if (route !== this.route) return;
    this.show(new CompareView(this, this.has(first), this.has(second)), [
      ...this.backCrumb(),
      h("span", {class: "crumb"}, "Compare"),
    ]);
  }

  has(id) {
    return id ? ([...this.traces.values()].find((trace) => normalId(trace.id) === normalId(id)) ?? null) : null;
  }

  compareFromHere() {
    if (this.view instanceof TraceView) {
      const here = this.view.trace;
      if (!this.has(here.id)) this.addTraces([here.raw]);
      const other = [...this.marked].find((id) => id !== here.id);
      return this.showCompare(here.id, other);
    }
    return this.showCompare(...this.marked);
  }

  compareMarked() {
    if (this.marked.size === 2) this.showCompare(...this.marked);
    else this.say("Mark two traces first.");
  }

  mark(id) {
    if (this.marked.has(id)) this.marked.delete(id);
    else this.marked.add(id);
    if (this.marked.size > 2) this.marked.delete([...this.marked][0]);
    this.view.markChanged?.();
  }

  followLink(ref, trace) {
    const id = ref.traceID ?? trace.id;
    if (normalId(id) === normalId(trace.id)) {
      if (!this.view.select(String(ref.spanID), {reveal: true})) this.say(`Span ${ref.spanID} is not in this trace.`);
      return;
    }
    if (!this.has(id) && !this.api) this.say(`Trace ${id} is not among the traces shown here.`);
    else this.showTrace(id, {span: String(ref.spanID)});
  }

  selected(trace, span) {
    this.goTo(`trace/${encodeURIComponent(trace.id)}`, {span: span.id}, true);
    this.options.onSelect?.(span.id, trace.id);
  }

  // -- data

  parse(raw) {
    const trace = parseTrace(raw);
    this.nameColours([trace]);
    return trace;
  }

  addTraces(raws) {
    for (const raw of readTraces(raws)) {
      const trace = this.parse(raw);
      this.traces.set(trace.id, trace);
    }
  }

  /** Put other traces in place of those shown. The open trace stays open if it is among them. */
  setTraces(raws) {
    const open = this.view instanceof TraceView ? this.view : null;
    this.traces.clear();
    try {
      this.addTraces(raws ?? []);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this.showProblem(error, () => this.showList());
      return;
    }
    const still = open && this.has(open.trace.id);
    if (still) {
      this.showParsed(still, {span: open.selected});
      this.view.zoomTo(...open.range);
    } else if (this.traces.size === 1 && !this.api) {
      this.showTrace([...this.traces.keys()][0]);
    } else {
      this.showList();
    }
  }

  async loadServices() {
    await this.attempt(async () => {
      this.services = (await this.api.services()).map(String).sort();
      if (!this.search.service && this.services.length) [this.search.service] = this.services;
      if (this.search.service)
        this.operations = (await this.api.operations(this.search.service)).map(operationName).sort();
    });
  }

  async loadOperations() {
    await this.attempt(async () => {
      this.operations = (await this.api.operations(this.search.service)).map(operationName).sort();
    });
  }

  async reload() {
    if (!this.api) return;
    await this.loadServices();
    if (!this.problem && this.services.length) await this.runSearch();
    else await this.countLosses();
    this.lookAgain();
  }

  /** A store without any trace is looked at again by itself: its page is often opened just before the first one. */
  lookAgain() {
    clearTimeout(this.lookTimer);
    if (this.services.length || this.problem || !this.element.isConnected) return;
    this.lookTimer = setTimeout(async () => {
      const services = await this.api.services().catch(() => []); // what fails here is said at the next click
      if (services.length && !this.busy) await this.reload();
      else this.lookAgain();
    }, LOOK_AGAIN_MS);
  }

  async runSearch() {
    this.loaded = true;
    if (this.view instanceof ListView) this.goTo("search", this.search, true);
    await this.attempt(async () => {
      const turn = (this.turn = (this.turn ?? 0) + 1);
      const raws = await this.api.search(this.search);
      if (turn !== this.turn) return; // a later search is under way; its answer is the one to show
      this.traces.clear();
      this.addTraces(raws);
    });
    await this.countLosses();
  }

  async countLosses() {
    this.losses = await this.api.losses();
    if (this.view instanceof ListView) this.view.buildNotes();
  }

  async attempt(work) {
    this.busy = true;
    this.problem = null;
    if (this.view instanceof ListView) this.view.waiting();
    try {
      await work();
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this.problem = error;
    } finally {
      this.busy = false;
    }
    if (this.view instanceof ListView) this.view.refresh();
  }

  problemState() {
    return emptyState({
      kind: "error",
      title: this.problem.message,
      text: this.problem.hint,
      actions: [button("Try again", {symbol: "refresh", class: "btn-primary", onclick: () => this.reload()})],
    });
  }

  pickFile() {
    this.file.value = "";
    this.file.click();
  }

  async importFiles(files) {
    for (const file of files) {
      try {
        const raws = readTraces(readJson(await file.text()));
        this.addTraces(raws);
        this.say(`${file.name}: ${plural(raws.length, "trace")} read.`);
        if (raws.length === 1) this.showTrace(String(raws[0].traceID ?? raws[0].spans[0]?.traceID));
        else this.showList();
      } catch (error) {
        if (!(error instanceof TraceError)) throw error;
        this.say(`${file.name}: ${error.message} ${error.hint}`, true);
      }
    }
  }

  exportShown() {
    if (this.view instanceof TraceView) this.exportTraces([this.view.trace]);
    else if (this.view instanceof CompareView) this.exportTraces([this.view.a, this.view.b].filter(Boolean));
    else this.exportTraces(this.view.shown ?? []);
  }

  exportTraces(traces) {
    if (!traces.length) return this.say("There is no trace to export.");
    const name = traces.length === 1 ? `trace-${traces[0].id}.json` : `traces-${traces.length}.json`;
    download(name.replace(/[^\w.-]/g, "_"), {
      data: traces.map((trace) => trace.raw),
      total: traces.length,
      limit: 0,
      offset: 0,
      errors: null,
    });
    return this.say(`Saved ${name}.`);
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.say("Copied.");
    } catch {
      this.say("The browser does not allow copying here. Select the text and copy it by hand.", true);
    }
  }

  say(text, bad = false) {
    this.toast.textContent = text;
    this.toast.className = scoped(`toast toast-shown ${bad ? "toast-bad" : ""}`);
    clearTimeout(this.toastTimer);
    this.toastTimer = setTimeout(() => this.toast.classList.remove("rtv-toast-shown"), bad ? TOAST_MS * 3 : TOAST_MS);
  }

  // -- colours

  nameColours(traces) {
    for (const trace of traces) for (const span of trace.order) if (!span.missing) this.colourName(span.service);
  }

  colourName(service) {
    if (!this.colours.has(service)) this.colours.set(service, `--rtv-c${this.colours.size % SERVICE_COLOURS}`);
    return this.colours.get(service);
  }

  colour(service) {
    return `var(${this.colourName(service)})`;
  }

  cssColour(name) {
    return getComputedStyle(this.element).getPropertyValue(name).trim() || "gray";
  }

  watchTheme(choice) {
    this.themeChoice = choice;
    const media = window.matchMedia("(prefers-color-scheme: dark)");
    const apply = () => this.applyTheme();
    media.addEventListener("change", apply);
    // JupyterLab says on the body whether its theme is light.
    const watch = new MutationObserver(apply);
    watch.observe(document.body, {attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"]});
    this.cleanups.push(
      () => media.removeEventListener("change", apply),
      () => watch.disconnect(),
    );
    this.applyTheme();
  }

  setTheme(choice) {
    this.themeChoice = ["light", "dark"].includes(choice) ? choice : "auto";
    this.applyTheme();
  }

  applyTheme() {
    const jupyter = document.body.dataset.jpThemeLight;
    const dark =
      jupyter === undefined ? window.matchMedia("(prefers-color-scheme: dark)").matches : jupyter === "false";
    this.element.dataset.theme = this.themeChoice === "auto" ? (dark ? "dark" : "light") : this.themeChoice;
    this.view?.themed();
  }

  toggleTheme() {
    this.setTheme(this.element.dataset.theme === "dark" ? "light" : "dark");
  }

  // -- keys

  key(event) {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    // A notebook has commands on single keys: what is typed in here must not insert or delete its cells.
    if (plain) event.stopPropagation();
    if (!plain || this.help.open || event.defaultPrevented || !(event.target instanceof Element)) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const own = {
      "?": () => this.help.showModal(),
      t: () => this.toggleTheme(),
      i: () => this.pickFile(),
      x: () => this.exportShown(),
    };
    if (own[event.key]) own[event.key]();
    else if (!this.view?.key(event)) return;
    else this.keepFocus();
    event.preventDefault();
  }

  /** A key that takes the focused element out of the page, such as "s", must not take the other keys with it. */
  keepFocus() {
    const focused = document.activeElement;
    if (focused !== this.element && this.element.contains(focused)) return;
    this.element.focus({preventScroll: true});
    this.view.focus?.(); // without effect while its rows are not shown
  }

  destroy() {
    this.view?.destroy();
    clearTimeout(this.toastTimer);
    clearTimeout(this.lookTimer);
    this.cleanups.forEach((clean) => clean());
    this.element.remove();
  }
}

const operationName = (item) => (typeof item === "string" ? item : String(item.name ?? item));

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TraceError(`not valid JSON (${error.message}).`, FORMAT_HINT);
  }
}

/**
 * Show a viewer inside `element`.
 * options: {traces?, api?, theme?: "light" | "dark" | "auto", mode?: "list" | "trace" | "compare", traceId?,
 * hash?: true to keep the place in the page's address, onSelect?: (spanId, traceId) => void}.
 */
export function mount(element, options = {}) {
  const viewer = new Viewer(element, options);
  return {
    setTraces: (traces) => viewer.setTraces(traces),
    showTrace: (id, spanId = null) => viewer.showTrace(id, {span: spanId}),
    setTheme: (theme) => viewer.setTheme(theme),
    destroy: () => viewer.destroy(),
  };
}

/** The anywidget contract: traits `traces`, `theme` and `selected` (a span id, written when a span is selected). */
function render({model, el}) {
  let telling = false;
  const viewer = new Viewer(el, {
    traces: model.get("traces") ?? [],
    theme: model.get("theme") ?? "auto",
    onSelect: (spanId) => {
      if (model.get("selected") === spanId) return;
      telling = true;
      model.set("selected", spanId);
      model.save_changes();
      telling = false;
    },
  });
  const show = () => {
    const wanted = model.get("selected");
    if (telling || !wanted) return;
    const trace = [...viewer.traces.values()].find((item) => item.byId.has(wanted));
    if (trace) viewer.showTrace(trace.id, {span: wanted});
  };
  const listeners = {
    "change:traces": () => viewer.setTraces(model.get("traces")),
    "change:selected": show,
    "change:theme": () => viewer.setTheme(model.get("theme")),
  };
  Object.entries(listeners).forEach(([name, listener]) => model.on(name, listener));
  show();
  return () => {
    Object.entries(listeners).forEach(([name, listener]) => model.off(name, listener));
    viewer.destroy();
  };
}

export default {render};
