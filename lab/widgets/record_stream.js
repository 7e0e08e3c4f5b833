// Records as they come, with a stop button. Traits `lines` (the last ones), `count`, `running`, `topic`, `trouble`.

function render({model, el}) {
  const state = h("span", {class: "rl-muted"});
  const dot = h("span", {class: "rl-dot"});
  const stop = h("button", {type: "button", class: "rl-danger", onclick: () => model.send({action: "stop"})}, "stop");
  const text = h("pre", {"aria-label": "records"});
  const note = h("div", {class: "rl-note", role: "alert", hidden: true});
  const head = h("div", {class: "rl-head"}, h("span", {}, dot, h("span", {class: "rl-title"}, model.get("topic"))), state);
  head.append(h("span", {class: "rl-space"}), stop);
  const root = h("div", {class: "rl rl-stream"}, head, text, note);
  el.append(root);
  const stopTheme = followTheme(root);
  const draw = () => {
    const running = model.get("running");
    dot.dataset.state = running ? "running" : "stopped";
    stop.hidden = !running;
    state.textContent = `${whole(model.get("count"))} records${running ? ", waiting for more" : ""}`;
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    text.textContent = model.get("lines").join("");
    if (atEnd) text.scrollTop = text.scrollHeight;
    note.textContent = model.get("trouble");
    note.hidden = !note.textContent;
  };
  draw();
  const stopListening = listen(model, {
    "change:lines": draw,
    "change:count": draw,
    "change:running": draw,
    "change:trouble": draw,
  });
  return () => {
    stopListening();
    stopTheme();
  };
}

export default {render};
