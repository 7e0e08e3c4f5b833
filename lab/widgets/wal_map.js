// The WAL map: one bar a segment, as long as its file, and in it what each partition takes. Traits `segments` and
// `contents` (lists). A click on a part shows its offsets.

const COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#c99a0c", "#9d755d"];
const OTHER = "#9aa4af";

function render({model, el}) {
  const list = h("div", {class: "rl-segments"});
  const legend = h("div", {class: "rl-legend"});
  const detail = h("div", {class: "rl-detail rl-muted", role: "status"}, "Click on a part to see its offsets.");
  const refresh = h("button", {type: "button", onclick: () => model.send({action: "refresh"})}, "refresh");
  const summary = h("span", {class: "rl-muted"});
  const root = h(
    "div",
    {class: "rl rl-wal"},
    h("div", {class: "rl-head"}, h("span", {class: "rl-title"}, "Write-ahead log"), summary, h("span", {class: "rl-space"}), refresh),
    list,
    legend,
    detail,
  );
  el.append(root);
  const stopTheme = followTheme(root);

  const draw = () => {
    const segments = model.get("segments");
    const contents = model.get("contents");
    const topics = [...new Set(contents.map((part) => part.topic))].sort();
    const colour = (topic) => COLOURS[topics.indexOf(topic) % COLOURS.length];
    const longest = Math.max(1, ...segments.map((segment) => segment.bytes));
    const total = segments.reduce((sum, segment) => sum + segment.bytes, 0);
    summary.textContent = `${segments.length} segment${segments.length === 1 ? "" : "s"}, ${size(total)}`;
    list.replaceChildren(
      ...segments.map((segment) => {
        const parts = contents.filter((part) => part.broker === segment.broker && part.segment === segment.segment);
        const bar = h("div", {class: "rl-bar", style: `width:${Math.max(4, (100 * segment.bytes) / longest)}%`});
        for (const part of parts) {
          const words =
            `${part.topic} partition ${part.partition}: offsets ${whole(part.first_offset)} to ` +
            `${whole(part.next_offset - 1)} in ${whole(part.batches)} batches, ${size(part.bytes)}`;
          const show = (event) => {
            root.querySelectorAll(".rl-part").forEach((other) => other.setAttribute("aria-pressed", "false"));
            event.currentTarget.setAttribute("aria-pressed", "true");
            detail.textContent = `${segment.file} of ${segment.broker}: ${words}`;
          };
          const look = `flex:${part.bytes} 0 0;background:${colour(part.topic)}`;
          bar.append(
            h("button", {type: "button", class: "rl-part", style: look, title: words, "aria-label": words, onclick: show}),
          );
        }
        const rest = segment.bytes - parts.reduce((sum, part) => sum + part.bytes, 0);
        bar.append(h("span", {style: `flex:${Math.max(0, rest)} 0 0;background:${OTHER};opacity:.45`, title: `control entries, ${size(rest)}`}));
        const name = h("span", {}, h("b", {}, segment.broker), ` segment ${segment.segment}`);
        const facts = h("span", {class: "rl-muted"}, `${size(segment.bytes)}, ${segment.state}`);
        return h("div", {class: "rl-segment"}, h("div", {class: "rl-segment-name"}, name, facts), bar);
      }),
    );
    const entry = (name, paint) => h("span", {}, h("span", {class: "rl-swatch", style: `background:${paint}`}), name);
    legend.replaceChildren(...topics.map((topic) => entry(topic, colour(topic))), entry("control entries", OTHER));
  };
  draw();
  const stopListening = listen(model, {"change:segments": draw, "change:contents": draw});
  return () => {
    stopListening();
    stopTheme();
  };
}

export default {render};
