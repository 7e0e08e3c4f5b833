// Stands in front of every widget's own script: elements, figures, the notebook's theme. Data becomes text nodes only.

const UNITS = ["B", "kB", "MB", "GB", "TB"];

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const whole = (number) => Math.round(number).toLocaleString("en-US");

function size(count) {
  let unit = 0;
  while (count >= 1000 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit ? count.toFixed(1) : Math.round(count)} ${UNITS[unit]}`;
}

/** Keeps data-theme as the notebook's; returns what ends that. */
function followTheme(root) {
  const look = () => {
    const jupyter = document.body.dataset.jpThemeLight;
    const dark =
      jupyter === undefined ? window.matchMedia("(prefers-color-scheme: dark)").matches : jupyter === "false";
    root.dataset.theme = dark ? "dark" : "light";
  };
  look();
  const observer = new MutationObserver(look);
  observer.observe(document.body, {attributes: true, attributeFilter: ["data-jp-theme-light"]});
  return () => observer.disconnect();
}

/** Calls the listeners of traits, `{"change:nodes": draw}`, until the returned function is called. */
function listen(model, listeners) {
  Object.entries(listeners).forEach(([name, listener]) => model.on(name, listener));
  return () => Object.entries(listeners).forEach(([name, listener]) => model.off(name, listener));
}

