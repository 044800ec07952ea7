"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const run_colour = (i) => colour("run" + (i % 6));
  const several = data.runs.length > 1;
  const trim = (x) => Number(x.toPrecision(3)).toString();
  const scaled = (x, units, base) => {
    let i = 0;
    while (i + 1 < units.length && Math.abs(x) >= base * 0.9995) { x /= base; i++; }
    return trim(x) + " " + units[i];
  };
  const seconds = (s) => Math.abs(s) >= 1 || s === 0 ? trim(s) + " s" : scaled(s * 1e9, ["ns", "us", "ms"], 1000);
  const bytes = (b) => scaled(b, ["B", "kB", "MB", "GB", "TB", "PB"], 1000);
  const count = (n) => n.toLocaleString("en");
  const percent = (p) => trim(100 * p) + " %";
  const element = (tag, attributes = {}, text = "") => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };

  // Curves ---------------------------------------------------------------------------------------------------------
  const axes = {
    step: { key: "step", title: "steps", show: (x) => count(x) },
    time: { key: "time_s", title: "seconds of training", show: (x) => trim(x) + " s" },
    bytes: { key: "bytes", title: "bytes sent by a rank", show: bytes },
  };
  let axis = "step";
  const charts = [];
  const at = (points, key) => points
    .filter((p) => p[axes[axis].key] !== undefined && p[key] !== undefined)
    .map((p) => ({ x: p[axes[axis].key], y: p[key] }));
  const few = (points) => points.length < 40;

  const line = (label, points, color, more = {}) => ({
    label, data: points, borderColor: color, backgroundColor: color, borderWidth: 2, tension: 0,
    pointRadius: few(points) ? 2.5 : 0, pointHitRadius: 8, spanGaps: false, ...more,
  });
  const quality = (key) => () => data.runs.flatMap((run, i) => {
    const suffix = several ? ", " + run.name : "";
    const train = line("training" + suffix, at(run.train, key), run_colour(i), { borderWidth: several ? 1.25 : 1.5 });
    const test = line("test" + suffix, at(run.test, key), several ? run_colour(i) : colour("run1"),
      { pointRadius: 4, borderDash: [5, 4], pointStyle: "rectRot" });
    return [train, test].filter((set) => set.data.length);
  });
  const speed = () => data.runs.flatMap((run, i) => {
    if (several) return [line(run.name, at(run.speed, "step_s"), run_colour(i))];
    const layered = run.speed.every((p) => p.compute_s !== undefined && p.exposed_s !== undefined);
    if (!layered) return [line("step", at(run.speed, "step_s"), run_colour(0))];
    const rest = run.speed.map((p) => ({ ...p, rest: Math.max(0, p.step_s - p.compute_s - p.exposed_s) }));
    const area = (label, points, color, below) => line(label, points, color,
      { fill: below, borderWidth: 1, stack: "step", backgroundColor: color + "a8" });
    return [area("compute", at(rest, "compute_s"), colour("backward"), "origin"),
      area("exposed communication", at(rest, "exposed_s"), colour("exposed"), "-1"),
      area("other", at(rest, "rest"), colour("update"), "-1")];
  }).filter((set) => set.data.length);

  const options = (title, show, stacked) => ({
    animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
    interaction: { mode: "index", intersect: false, axis: "x" },
    scales: {
      x: { type: "linear", min: 0, bounds: "data", grid: { color: colour("grid") }, border: { color: colour("line") },
        title: { display: true, text: axes[axis].title, color: colour("soft") },
        ticks: { color: colour("soft"), maxRotation: 0, maxTicksLimit: 7, includeBounds: false, callback: (x) => axes[axis].show(x) } },
      y: { stacked, beginAtZero: stacked, grid: { color: colour("grid") }, border: { color: colour("line") },
        title: { display: true, text: title, color: colour("soft") },
        ticks: { color: colour("soft"), maxTicksLimit: 6, callback: show } },
    },
    plugins: {
      legend: { display: !several, position: "top", align: "start",
        labels: { color: colour("ink"), boxWidth: 14, boxHeight: 3, padding: 14 } },
      tooltip: { callbacks: { title: (items) => items.length ? axes[axis].show(items[0].parsed.x) : "",
        label: (item) => item.dataset.label + ": " + show(item.parsed.y) } },
    },
  });

  const add_chart = (id, title, sets, show, stacked = () => false) => {
    const box = document.getElementById(id);
    if (!box) return;
    const canvas = box.querySelector("canvas");
    const made = { draw() {
      if (made.chart) made.chart.destroy();
      const datasets = sets();
      box.hidden = datasets.length === 0;
      if (box.hidden) return;
      made.chart = new Chart(canvas, { type: "line", data: { datasets }, options: options(title, show, stacked()) });
      box.dataset.points = datasets.reduce((n, set) => n + set.data.length, 0);
    } };
    charts.push(made);
  };

  // Timeline -------------------------------------------------------------------------------------------------------
  const svg_namespace = "http://www.w3.org/2000/svg";
  const shape = (parent, tag, attributes, text) => {
    const made = document.createElementNS(svg_namespace, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  };
  const counted = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const lanes_of = (events) => {  // exchanges that overlap stand in different lanes
    const ends = [];
    return [...events].sort((a, b) => a.begin - b.begin).map((event) => {
      let lane = ends.findIndex((end) => end <= event.begin + 1e-12);
      if (lane < 0) lane = ends.push(0) - 1;
      ends[lane] = event.end;
      return { ...event, lane };
    });
  };
  const unpack = (rank, shift) => rank.events.map(([kind, index, begin, end, sent]) =>
    ({ rank: rank.rank, kind, index, begin: begin + shift, end: end + shift, sent }));
  const nice_step = (span, most) => {
    const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw) || raw;
  };
  const number = (e) => (e.index < 0 ? "" : String(e.index));
  const describe = (e) => `${[e.kind, number(e)].join(" ").trim()} on rank ${e.rank}: ${seconds(e.begin)} to ${seconds(e.end)}, ` +
    `${seconds(e.end - e.begin)}${e.kind === "exchange" ? ", " + bytes(e.sent) + " sent" : ""}`;

  // Ranks count from the run's start; where their clocks are too far apart to compare, each begins at 0.
  const shifts = (ranks) => {
    const first = Math.min(...ranks.map((r) => r.begin_s)), longest = Math.max(...ranks.map((r) => r.step_s));
    const apart = ranks.some((r) => r.begin_s - first > longest / 2);
    return { apart, of: (r) => (apart ? 0 : r.begin_s - first) };
  };

  const draw_rank = (svg, rank, shift, top, place) => {
    const { left, x, right } = place;
    const say = place.say;
    const figures = [`rank ${rank.rank}: ${seconds(rank.step_s)}, ${seconds(rank.exposed_s)} exposed`,
      `${bytes(rank.bytes)} sent in ${counted(rank.events.filter(([kind]) => kind === "exchange").length, "exchange")}`];
    const titles = left ? [figures.join(", ")] : figures;
    titles.forEach((text, i) => shape(svg, "text", { x: 0, y: top + 14 + 17 * i, class: "name" }, text));
    let y = top + 7 + 17 * titles.length;
    const lane = (name, height) => {
      if (left) shape(svg, "text", { x: 0, y: y + height / 2 + 4 }, name);
      shape(svg, "rect", { x: left, y, width: right - left, height, class: "lane", rx: 2 });
    };
    const bar = (event, height, offset = 0) => {
      const x0 = x(event.begin), width = Math.max(x(event.end) - x0, 0.75);
      const rect = shape(svg, "rect", { x: x0, y: y + offset, width, height, class: "event " + event.kind, rx: 1.5 });
      shape(rect, "title", {}, describe(event));
      rect.addEventListener("pointerenter", () => say(describe(event)));
      const label = number(event) || event.kind;
      if (event.labelled && width > label.length * 6.5 + 6)
        shape(svg, "text", { x: x0 + width / 2, y: y + offset + height / 2 + 4, "text-anchor": "middle",
          class: "on-" + event.kind, "pointer-events": "none" }, label);
    };
    const events = unpack(rank, shift);
    const compute = events.filter((e) => e.kind !== "exchange");
    lane("compute", 22);
    compute.forEach((e) => bar({ ...e, labelled: compute.length < 60 }, 22));
    y += 27;
    const exchanges = lanes_of(events.filter((e) => e.kind === "exchange"));
    if (exchanges.length) {
      const used = Math.max(...exchanges.map((e) => e.lane)) + 1;
      const height = used > 12 ? 8 : 15;
      lane("exchanges", used * (height + 2) - 2);
      exchanges.forEach((e) => bar({ ...e, labelled: height > 10 }, height, e.lane * (height + 2)));
      y += used * (height + 2) + 4;
      lane("exposed", 10);
      for (const [begin, end] of rank.exposed)
        shape(svg, "rect", { x: x(begin + shift), y, width: Math.max(x(end + shift) - x(begin + shift), 0.75),
          height: 10, class: "exposed" });
      y += 14;
    }
    return y + 12;
  };

  const draw_timeline = (box, step) => {
    const holder = box.querySelector(".timeline"), said = box.querySelector(".said");
    const width = Math.max(holder.clientWidth, 240), left = width < 560 ? 0 : 84;
    const shift = shifts(step.ranks);
    const span = Math.max(...step.ranks.map((r) => r.step_s + shift.of(r))) || 1e-9;
    const right = width - 1, x = (t) => left + (right - left) * t / span;
    holder.textContent = "";
    said.textContent = "Point at a bar, or tap it, for its times.";
    const svg = shape(holder, "svg", { role: "img", "aria-label": `Timeline of step ${step.step}: ` +
      step.ranks.map((r) => `rank ${r.rank} ${seconds(r.step_s)}, ${seconds(r.exposed_s)} exposed`).join("; ") });
    const ticks = shape(svg, "g", {});
    let y = 20;
    for (const rank of step.ranks)
      y = draw_rank(svg, rank, shift.of(rank), y, { left, right, x, say: (text) => { said.textContent = text; } });
    const every = nice_step(span, width < 560 ? 4 : 9);
    for (let t = 0; t <= span * 1.0001; t += every) {
      shape(ticks, "line", { x1: x(t), x2: x(t), y1: 16, y2: y - 8, class: "rule" });
      const anchor = t === 0 ? "start" : x(t) > right - 24 ? "end" : "middle";
      shape(ticks, "text", { x: x(t), y: 11, "text-anchor": anchor }, seconds(Number(t.toPrecision(6))));
    }
    svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
    svg.setAttribute("height", y);
    box.querySelector(".apart").hidden = !shift.apart;
    box.dataset.bars = svg.querySelectorAll("rect.event").length;
    fill_table(box, step, shift);
  };

  const fill_table = (box, step, shift) => {
    const body = box.querySelector("tbody");
    body.textContent = "";
    for (const rank of step.ranks)
      for (const e of unpack(rank, shift.of(rank)).filter((one) => one.kind === "exchange").slice(0, 500)) {
        const row = body.appendChild(element("tr"));
        [rank.rank, e.index, seconds(e.begin), seconds(e.end), seconds(e.end - e.begin), bytes(e.sent)]
          .forEach((text) => row.appendChild(element("td", {}, String(text))));
      }
    box.querySelector("details").hidden = !body.children.length;
  };

  const start_timeline = (box) => {
    const trace = data.runs[Number(box.dataset.run)].trace;
    const select = box.querySelector("select");
    trace.steps.forEach((step, i) => {
      const longest = Math.max(...step.ranks.map((r) => r.step_s));
      select.appendChild(element("option", { value: i },
        `step ${count(step.step)}: ${seconds(longest)}${step.what ? ", " + step.what : ""}`));
    });
    select.value = Math.max(0, trace.steps.findIndex((step) => step.what === "typical"));
    const draw = () => draw_timeline(box, trace.steps[Number(select.value)]);
    select.addEventListener("change", draw);
    let drawn = 0;
    new ResizeObserver(() => {
      const width = box.querySelector(".timeline").clientWidth;
      if (width !== drawn) { drawn = width; draw(); }
    }).observe(box.querySelector(".timeline"));
    draw();
  };

  // Start ----------------------------------------------------------------------------------------------------------
  const has = (key) => data.runs.some((run) => [...run.train, ...run.test, ...run.speed].some((p) => p[key] !== undefined));
  for (const input of document.querySelectorAll("input[name=axis]")) {
    input.disabled = !has(axes[input.value].key);
    input.addEventListener("change", () => { axis = input.value; draw_charts(); });
  }
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  const stacked = () => !several && data.runs[0].speed.every((p) => p.compute_s !== undefined && p.exposed_s !== undefined);
  add_chart("chart-loss", "loss", quality("loss"), trim);
  add_chart("chart-accuracy", "accuracy", quality("accuracy"), percent);
  add_chart("chart-speed", "seconds a step", speed, seconds, stacked);
  const draw_charts = () => charts.forEach((chart) => chart.draw());
  draw_charts();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw_charts);
  document.querySelectorAll(".steps").forEach(start_timeline);
  root.dataset.ready = "true";
})();
