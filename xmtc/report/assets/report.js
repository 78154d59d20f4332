"use strict";
(() => {
  const data = JSON.parse(document.getElementById("label-data").textContent);
  const byId = (id) => document.getElementById(id);
  const ROW = 33; // pixels: 32 of height and the border
  const total = data.labels.length;
  const named = data.names.some((name) => name !== 0);
  const several = data.runs.length > 1;
  const ratio = (part, whole) => (whole > 0 ? part / whole : -1);
  const supportOf = (run) => run.support || data.support; // of its own where runs saw other documents
  const f1Of = (run) => Float32Array.from(run.tp, (tp, i) => ratio(2 * tp, tp + run.fp[i] + supportOf(run)[i]));
  const scores = data.runs.map(f1Of);
  const columnsOf = (r) => {
    const run = data.runs[r];
    const columns = [
      { key: "label", words: true, value: (i) => data.labels[i] },
      ...(named ? [{ key: "name", words: true, value: (i) => data.names[i] || "" }] : []),
      { key: "train", value: (i) => data.train[i] },
      { key: "documents", value: (i) => supportOf(run)[i] },
      { key: "F1", share: true, value: (i) => scores[r][i] },
      { key: "precision", share: true, value: (i) => ratio(run.tp[i], run.tp[i] + run.fp[i]) },
      { key: "recall", share: true, value: (i) => ratio(run.tp[i], supportOf(run)[i]) },
      { key: "AP", share: true, value: (i) => (run.ap[i] < 0 ? -1 : run.ap[i] / 1000) },
    ];
    if (several && r > 0) {
      const change = (i) => Math.max(scores[r][i], 0) - Math.max(scores[0][i], 0);
      columns.push({ key: "F1 change", signed: true, value: change });
    }
    const confused = (i) => (run.confused[i] || []).map((j) => data.names[j] || data.labels[j]).join(", ");
    columns.push({ key: "confused with", words: true, value: confused });
    return columns;
  };
  const text = (column, i) => {
    const value = column.value(i);
    if (column.words) return value;
    if (column.signed) return (value > 0 ? "+" : "") + (100 * value).toFixed(1);
    if (column.share) return value < 0 ? "–" : (100 * value).toFixed(1);
    return value.toLocaleString("en");
  };
  const inBin = (name, count) => {
    if (name === "") return true;
    if (name[0] === ">") return count > Number(name.slice(1));
    const [low, high = low] = name.split("-").map(Number);
    return count >= low && count <= high;
  };

  const state = { run: 0, sort: "documents", falling: true, rows: [], columns: columnsOf(0), from: -1, to: -1 };
  const haystack = data.labels.map((label, i) => (label + "\n" + (data.names[i] || "")).toLowerCase());
  const head = byId("explorer").tHead;
  const body = byId("explorer").tBodies[0];
  const view = byId("window");

  const compare = (column) => {
    const sign = state.falling ? -1 : 1;
    const keys = new Array(total);
    for (const i of state.rows) keys[i] = column.value(i);
    if (column.words) {
      const order = new Intl.Collator("en", { numeric: true });
      return (a, b) => sign * order.compare(keys[a], keys[b]) || a - b;
    }
    return (a, b) => sign * (keys[a] - keys[b]) || a - b;
  };
  const select = () => {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const bin = byId("bin").value;
    const present = byId("present").checked;
    state.rows = [];
    for (let i = 0; i < total; i++) {
      if (present && supportOf(data.runs[state.run])[i] === 0) continue;
      if (!inBin(bin, data.train[i])) continue;
      if (words.every((word) => haystack[i].includes(word))) state.rows.push(i);
    }
    const column = state.columns.find((c) => c.key === state.sort) || state.columns[0];
    state.rows.sort(compare(column));
    byId("count").textContent = `${state.rows.length.toLocaleString("en")} of ${total.toLocaleString("en")} labels`;
    byId("explorer").setAttribute("aria-rowcount", String(state.rows.length + 1));
    view.scrollTop = 0;
    state.from = -1;
    draw();
  };
  const space = (height) => {
    const row = document.createElement("tr");
    row.className = "space";
    row.setAttribute("aria-hidden", "true");
    const cell = document.createElement("td");
    cell.colSpan = state.columns.length;
    cell.style.height = `${height}px`;
    row.append(cell);
    return row;
  };
  const draw = () => {
    const seen = Math.ceil(view.clientHeight / ROW);
    const from = Math.max(0, Math.floor(view.scrollTop / ROW) - 10);
    const to = Math.min(state.rows.length, from + seen + 20);
    if (from === state.from && to === state.to) return;
    Object.assign(state, { from, to });
    const rows = [space(from * ROW)];
    for (let place = from; place < to; place++) {
      const row = document.createElement("tr");
      row.setAttribute("aria-rowindex", String(place + 2));
      state.columns.forEach((column, c) => {
        const cell = document.createElement(c === 0 ? "th" : "td");
        if (c === 0) cell.scope = "row";
        if (column.words) cell.className = "words";
        cell.textContent = text(column, state.rows[place]);
        if (column.words) cell.title = cell.textContent;
        row.append(cell);
      });
      rows.push(row);
    }
    rows.push(space((state.rows.length - to) * ROW));
    body.replaceChildren(...rows);
  };
  const drawHead = () => {
    const row = document.createElement("tr");
    for (const column of state.columns) {
      const cell = document.createElement("th");
      const button = document.createElement("button");
      const active = column.key === state.sort;
      cell.scope = "col";
      if (column.words) cell.className = "words";
      if (active) cell.setAttribute("aria-sort", state.falling ? "descending" : "ascending");
      button.type = "button";
      button.dataset.key = column.key;
      button.textContent = column.key + (active ? (state.falling ? " ▼" : " ▲") : "");
      button.addEventListener("click", () => sortBy(column));
      cell.append(button);
      row.append(cell);
    }
    head.replaceChildren(row);
  };
  const sortBy = (column) => {
    state.falling = column.key === state.sort ? !state.falling : !column.words;
    state.sort = column.key;
    drawHead();
    select();
    head.querySelector(`button[data-key="${column.key}"]`).focus();
  };
  const chooseRun = (run) => {
    state.run = run;
    state.columns = columnsOf(run);
    if (!state.columns.some((column) => column.key === state.sort)) state.sort = "documents";
    drawHead();
    select();
  };

  window.addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details.folded")) folded.open = true;
  });

  let pending = 0;
  byId("search").addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(select, 80);
  });
  byId("bin").addEventListener("change", select);
  byId("present").addEventListener("change", select);
  view.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  window.addEventListener("resize", draw);
  if (several) byId("run").addEventListener("change", (event) => chooseRun(Number(event.target.value)));
  const boxes = document.querySelectorAll("input[data-run]");
  const hide = (box) => document.body.classList.toggle(`hide-${box.dataset.run}`, !box.checked);
  for (const box of boxes) box.addEventListener("change", () => hide(box));
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) return; // all is as it was
    boxes.forEach(hide); // by now, the browser has restored what was chosen on an earlier visit
    chooseRun(several ? Number(byId("run").value) : 0);
  });
})();
