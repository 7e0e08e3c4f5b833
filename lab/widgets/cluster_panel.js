// The cluster panel: nodes with live rates and buttons. Trait `nodes` (a list), `facts` (bootstrap, data, traces),
// `trouble` (a sentence). A button sends {action, node}.

const HISTORY = 60; // looks that a sparkline shows, about a second each
// What can be done to a node in each state.
const ACTIONS = {
  running: ["pause", "stop", "kill"],
  paused: ["resume", "kill"],
  starting: ["kill"],
};

function spark(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "rl-spark");
  svg.setAttribute("viewBox", `0 0 ${HISTORY} 24`);
  svg.setAttribute("preserveAspectRatio", "none");
  const top = Math.max(1, ...values);
  const from = HISTORY - values.length;
  const points = values.map((value, at) => `L${from + at} ${(22 - (20 * value) / top).toFixed(1)}`).join(" ");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M${from} 23 ${points} L${from + values.length - 1} 23 Z`);
  if (values.length > 1) svg.append(path);
  return svg;
}

function row(node, history, act) {
  const broker = node.role === "broker";
  const buttons = (ACTIONS[node.state] ?? ["start"]).map((action) =>
    h(
      "button",
      {
        type: "button",
        class: action === "kill" ? "rl-danger" : "",
        "aria-label": `${action} ${node.name}`,
        onclick: (event) => {
          event.target.disabled = true;
          act(action, node.name);
        },
      },
      action,
    ),
  );
  const dash = () => h("td", {class: "rl-n rl-muted"}, "–");
  return h(
    "tr",
    {"data-node": node.name},
    h("td", {}, h("span", {class: "rl-dot", "data-state": node.state}), node.name),
    h("td", {class: "rl-state"}, node.state),
    h("td", {class: "rl-mono rl-muted"}, node.address),
    broker ? h("td", {class: "rl-n"}, whole(node.records)) : dash(),
    broker ? h("td", {class: "rl-n"}, size(node.log_bytes)) : dash(),
    broker ? h("td", {class: "rl-n rl-rate"}, `${whole(node.records_per_s)}/s`) : dash(),
    h("td", {}, broker ? spark(history) : ""),
    h("td", {class: "rl-n"}, `${whole(node.cpu_percent)} %`),
    h("td", {class: "rl-n"}, `${whole(node.memory_mb)} MB`),
    h("td", {}, h("div", {class: "rl-actions"}, ...buttons)),
  );
}

function render({model, el}) {
  const histories = new Map();
  const title = h("span", {class: "rl-title"}, "Cluster");
  const facts = h("span", {class: "rl-facts"});
  const body = h("tbody");
  const note = h("div", {class: "rl-note", role: "alert", hidden: true});
  const names = ["node", "state", "address", "records", "log", "written", "", "CPU", "memory", ""];
  const numeric = new Set(["records", "log", "written", "CPU", "memory"]);
  const head = h("tr", {}, ...names.map((name) => h("th", numeric.has(name) ? {class: "rl-n"} : {}, name)));
  const root = h(
    "div",
    {class: "rl rl-panel"},
    h("div", {class: "rl-head"}, title, facts),
    h("div", {class: "rl-scroll"}, h("table", {class: "rl-table"}, h("thead", {}, head), body)),
    note,
  );
  el.append(root);
  const stopTheme = followTheme(root);
  const act = (action, node) => model.send({action, node});

  const draw = () => {
    const known = model.get("facts");
    facts.replaceChildren(
      ...(known.bootstrap
        ? ["Kafka at ", h("code", {}, known.bootstrap)]
        : [h("span", {class: "rl-muted"}, "stopped; lab.start() starts it again")]),
    );
    if (known.traces) facts.append("  traces at ", h("code", {}, known.traces));
    const rows = model.get("nodes").map((node) => {
      const history = [...(histories.get(node.name) ?? []), node.records_per_s].slice(-HISTORY);
      histories.set(node.name, history);
      return row(node, history, act);
    });
    body.replaceChildren(...rows);
  };
  const warn = () => {
    note.textContent = model.get("trouble");
    note.hidden = !note.textContent;
  };
  draw();
  warn();
  const stopListening = listen(model, {"change:nodes": draw, "change:facts": draw, "change:trouble": warn});
  return () => {
    stopListening();
    stopTheme();
  };
}

export default {render};
