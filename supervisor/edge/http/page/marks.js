/* What is drawn: the mark of a state, whose shape says as much as its colour, and sparklines. */

import { el, printable, set, svg, write } from "./dom.js";

const SHAPES = {
  ready: [["circle", { cx: 8, cy: 8, r: 5 }]],
  down: [["circle", { cx: 8, cy: 8, r: 4.2, class: "line" }]],
  failed: [["path", { d: "M4 4 12 12M12 4 4 12", class: "line" }]],
  backoff: [["path", { d: "M12.5 8A4.5 4.5 0 1 1 10.6 4.3M10.8 1.6V4.6H7.8", class: "line" }]],
  degraded: [["path", { d: "M8 2.2 14.4 13.4H1.6Z" }]],
  starting: [
    ["circle", { cx: 8, cy: 8, r: 4.6, class: "line" }],
    ["path", { d: "M8 3.4A4.6 4.6 0 0 1 8 12.6Z" }],
  ],
  preparing: [["path", { d: "M4.5 2.5H11.5L8 8 11.5 13.5H4.5L8 8Z", class: "line" }]],
  stopping: [["rect", { x: 4, y: 4, width: 8, height: 8, rx: 1 }]],
};

/** The mark and name of a state; `show(state)` of the element changes it. */
export function stateMark(state) {
  const icon = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: "icon" });
  const name = el("span", {});
  const mark = el("span", { class: "state" }, icon, name);
  mark.show = (now) => {
    if (mark.dataset.state === now) return;
    mark.dataset.state = now;
    write(name, printable(now));
    icon.replaceChildren(...(SHAPES[now] ?? SHAPES.down).map(([tag, of]) => svg(tag, of)));
  };
  mark.show(state);
  return mark;
}

const WIDTH = 60;
const HEIGHT = 20;

/** A line of the last values, the newest at the right end; what is not known is a gap.
    `show(values)` of the element draws it, and hides it if all are 0 or unknown. It says nothing to a screen reader: the figure beside
    it does. */
export function sparkline(length) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "trend" });
  const made = svg(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      width: WIDTH,
      height: HEIGHT,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    area,
    line,
  );
  let drawn = null;
  made.show = (values) => {
    if (values === drawn) return;
    drawn = values;
    const [stroke, below] = outline(values, length);
    set(made, "hidden", !stroke || !values.some(Boolean));
    set(line, "d", stroke);
    set(area, "d", below);
  };
  return made;
}

function outline(values, length) {
  const known = values.filter((one) => one !== null);
  const highest = Math.max(...known, Number.MIN_VALUE);
  const span = Math.min(length, Math.max(values.length, 10)); // a few values fill it, too
  const step = WIDTH / (span - 1);
  const first = span - values.length;
  let stroke = "";
  let below = "";
  let run = [];
  const end = () => {
    if (run.length > 1) {
      const points = run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      stroke += `M${points}`;
      below += `M${run[0][0].toFixed(1)} ${HEIGHT}L${points}L${run.at(-1)[0].toFixed(1)} ${HEIGHT}Z`;
    }
    run = [];
  };
  values.forEach((value, at) => {
    if (value === null) end();
    else run.push([(first + at) * step, HEIGHT - 1.5 - (value / highest) * (HEIGHT - 3)]);
  });
  end();
  return [stroke, below];
}
