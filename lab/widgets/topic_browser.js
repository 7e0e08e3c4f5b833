// The topic browser: topics on the left, the records of one on the right, page by page. Traits `topics`, `records`,
// `view` ({topic, partition, offset, low, high}), `trouble`. Sends {topic, partition, offset} to show another page.

const PAGE = 20; // the same as in topic_browser.py

function render({model, el}) {
  const topics = h("ul", {class: "rl-topics"});
  const right = h("div", {class: "rl-right"});
  const note = h("div", {class: "rl-note", role: "alert", hidden: true});
  const refresh = h("button", {type: "button", onclick: () => model.send({...model.get("view"), refresh: true})}, "refresh");
  const root = h(
    "div",
    {class: "rl rl-browser"},
    h("div", {class: "rl-head"}, h("span", {class: "rl-title"}, "Topics"), h("span", {class: "rl-space"}), refresh),
    h("div", {class: "rl-columns"}, topics, right),
    note,
  );
  el.append(root);
  const stopTheme = followTheme(root);
  const ask = (topic, partition, offset) => model.send({topic, partition, offset});

  const drawTopics = () => {
    const chosen = model.get("view").topic;
    topics.replaceChildren(
      ...model.get("topics").map((topic) =>
        h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: "rl-topic",
              "aria-pressed": String(topic.topic === chosen),
              onclick: () => ask(topic.topic, 0, null),
            },
            h("span", {}, topic.topic),
            h("span", {class: "rl-muted"}, topic.records.toLocaleString("en-US")),
          ),
        ),
      ),
    );
    if (!topics.children.length) topics.append(h("li", {class: "rl-muted"}, "no topics yet"));
  };

  const drawRecords = () => {
    const view = model.get("view");
    if (!view.topic) {
      right.replaceChildren(h("p", {class: "rl-muted"}, "Choose a topic to see its records."));
      return;
    }
    const known = model.get("topics").find((topic) => topic.topic === view.topic);
    const select = h("select", {"aria-label": "partition", onchange: (event) => ask(view.topic, Number(event.target.value), null)});
    for (let number = 0; number < (known?.partitions ?? 1); number += 1)
      select.append(h("option", {value: String(number), selected: number === view.partition}, `partition ${number}`));
    const rows = model.get("records").map((record) =>
      h(
        "tr",
        {},
        h("td", {class: "rl-n"}, String(record.offset)),
        h("td", {class: "rl-muted"}, record.timestamp),
        h("td", {class: "rl-value"}, record.key ?? ""),
        h("td", {class: "rl-value", title: record.value ?? ""}, record.value ?? "null"),
        h("td", {class: "rl-mono rl-muted", title: record.trace_id ?? ""}, (record.trace_id ?? "").slice(0, 8)),
      ),
    );
    const heads = ["offset", "time", "key", "value", "trace"];
    const head = h("tr", {}, ...heads.map((name) => h("th", name === "offset" ? {class: "rl-n"} : {}, name)));
    const go = (offset) => ask(view.topic, view.partition, offset);
    right.replaceChildren(
      h("div", {class: "rl-scroll"}, h("table", {class: "rl-table"}, h("thead", {}, head), h("tbody", {}, ...rows))),
      h(
        "div",
        {class: "rl-pages"},
        select,
        h("button", {type: "button", disabled: view.offset <= view.low, onclick: () => go(Math.max(view.low, view.offset - PAGE))}, "older"),
        h("button", {type: "button", disabled: view.offset + PAGE >= view.high, onclick: () => go(view.offset + PAGE)}, "newer"),
        h("span", {class: "rl-muted"}, `offsets ${view.low} to ${Math.max(view.low, view.high - 1)}`),
      ),
    );
  };
  const draw = () => {
    drawTopics();
    drawRecords();
  };
  const warn = () => {
    note.textContent = model.get("trouble");
    note.hidden = !note.textContent;
  };
  draw();
  warn();
  const stopListening = listen(model, {
    "change:topics": draw,
    "change:records": draw,
    "change:view": draw,
    "change:trouble": warn,
  });
  return () => {
    stopListening();
    stopTheme();
  };
}

export default {render};
