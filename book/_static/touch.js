// Try the attack: a batch of digits, the row sums of its gradient (LLG's Eqs. 9 and 14), and Algorithm 1.
const CLASSES = 10;

// Row sums of the last layer's gradient: the mean over the batch of (softmax - one at the label) times the inputs' sum.
function rowSums(batch) {
  return Array.from({ length: CLASSES }, (_, i) =>
    batch.reduce((sum, digit) => sum + ((digit.p[i] - (digit.label === i)) * digit.mass) / batch.length, 0));
}

// The labels in the order in which LLG infers them, each with the remaining row sums and the reason.
function llg(sums, samples) {
  const g = [...sums], labels = [];
  const impact = ((1 + 1 / CLASSES) / samples) * g.reduce((sum, x) => sum + Math.min(x, 0), 0);
  const infer = (label, why) => labels.push({ label, why, rest: ((g[label] -= impact), [...g]) });
  const order = [...g.keys()].sort((a, b) => g[a] - g[b]);
  for (const label of order.filter((label) => g[label] < 0)) infer(label, "its sum is negative");
  while (labels.length < samples) infer(g.indexOf(Math.min(...g)), "its sum is the smallest");
  return labels;
}

function counted(labels) {
  return Array.from({ length: CLASSES }, (_, i) => labels.filter((label) => label === i).length);
}

const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toPrecision(2);

// Bars: an outline for the sums in the update, filled the remaining sums; below, counts of the batch and of the server.
function draw(svg, sent, rest, taken, truth, inferred) {
  const most = Math.max(...sent.map(Math.abs), ...rest.map(Math.abs), 1e-9);
  const at = (i) => 98 + 36 * i, height = (y) => 76 - (66 * y) / most;
  const words = (x, y, text, anchor = "middle") => `<text x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;
  const bar = (kind, i, y) =>
    `<rect class="${kind}" x="${at(i) - 13}" width="26" y="${Math.min(height(y), 76)}" height="${Math.abs(height(y) - 76)}"/>`;
  const parts = ["class", "in the batch", "inferred"].map((name, k) => words(2, 172 + 22 * k, name, "start"));
  parts.push('<path class="axis" d="M80 76H440"/>', words(74, 81, "0", "end"));
  for (const y of [most, -most]) parts.push(words(74, height(y) + 5, signed(y), "end"));
  rest.forEach((y, i) => {
    parts.push(bar(i === taken ? "hit" : y < 0 ? "miss" : "truth", i, y), bar("sent", i, sent[i]));
    [i, truth[i] || "·", inferred[i] || "·"].forEach((text, k) => parts.push(words(at(i), 172 + 22 * k, text)));
  });
  svg.innerHTML = parts.join("");
}

// A toolbar is one stop of the tab key; the arrow keys move among its buttons, up and down to the nearest in the next row.
function toolbar(box) {
  const stop = (button) => [...box.children].forEach((one) => (one.tabIndex = one === button ? 0 : -1));
  box.addEventListener("focusin", (event) => stop(event.target));
  box.addEventListener("keydown", (event) => {
    const buttons = [...box.children], here = document.activeElement, place = buttons.indexOf(here);
    const far = (one) => 1e4 * Math.abs(one.offsetTop - here.offsetTop) + Math.abs(one.offsetLeft - here.offsetLeft);
    const nearest = (sign) => buttons.filter((one) => sign * (one.offsetTop - here.offsetTop) > 0).sort((a, b) => far(a) - far(b))[0];
    const moves = { ArrowLeft: () => buttons[place - 1], ArrowRight: () => buttons[place + 1], Home: () => buttons[0],
      End: () => buttons.at(-1), ArrowUp: () => nearest(-1), ArrowDown: () => nearest(1) };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]()?.focus();
  });
  return stop;
}

function begin(figure) {
  const { most, few, start, digits } = JSON.parse(figure.dataset.settings);
  const [choice, batchBox, svg, slider] = [".choice", ".batch", "svg", "input"].map((name) => figure.querySelector(name));
  const [status, output] = [".status", "output"].map((name) => figure.querySelector(name));
  const buttons = [...choice.children], stopAt = [choice, batchBox].map(toolbar);
  let batch = [...start], labels = [], sums = [], opened = false;

  function show() {
    const step = Number(slider.value), last = labels[step - 1];
    const truth = batch.map((i) => digits[i].label).sort(), guess = labels.slice(0, step).map(({ label }) => label).sort();
    const [inBatch, inferred] = [truth, guess].map(counted);
    draw(svg, sums, last ? last.rest : sums, last?.label, inBatch, inferred);
    const right = inBatch.reduce((sum, n, i) => sum + Math.min(n, inferred[i]), 0);
    output.value = `${step} of ${labels.length} inferred`;
    slider.setAttribute("aria-valuetext", output.value);
    status.textContent = (batch.length < most ? "" : `The batch is full: ${most} images. `) + (
      !batch.length ? "The batch is empty: choose an image."
      : !step ? `${sums.filter((x) => x < 0).length} sums are negative: these labels are in the batch.`
      : step < labels.length ? `Label ${last.label} is inferred, since ${last.why}; the estimate of one sample is subtracted from its sum.`
      : `Inferred: ${guess.join(", ")}. In the batch: ${truth.join(", ")}. ${right} of ${truth.length} are right.`);
    svg.setAttribute("aria-label", "Row sums: " + (last ? last.rest : sums).map((x, i) => `class ${i} ${signed(x)}`).join(", "));
  }

  function takeOut(place) {
    const [digit] = batch.splice(place, 1);
    change();
    (batchBox.children[Math.min(place, batch.length - 1)] ?? buttons[digit]).focus();
  }

  function change() {
    sums = batch.length ? rowSums(batch.map((i) => digits[i])) : Array(CLASSES).fill(0);
    labels = batch.length ? llg(sums, batch.length) : [];
    const atEnd = slider.value === slider.max; // a reader who has moved the slider to its end wants the answer at once
    slider.max = labels.length;
    slider.value = opened && atEnd ? labels.length : 0;
    opened = true;
    buttons.forEach((button) => button.setAttribute("aria-disabled", batch.length >= most)); // not `disabled`: that loses the focus
    batchBox.replaceChildren(...batch.map((i, place) => {
      const button = buttons[i].cloneNode(true);
      button.removeAttribute("aria-disabled");
      button.setAttribute("aria-label", `take out this ${digits[i].label}`);
      button.addEventListener("click", () => takeOut(place));
      return button;
    }));
    stopAt[1](batchBox.firstElementChild);
    show();
  }

  buttons.forEach((button, i) => button.addEventListener("click", () => {
    if (batch.length < most) batch.push(i);
    change();
  }));
  figure.querySelector(".clear").addEventListener("click", () => ((batch = []), change()));
  figure.querySelector(".random").addEventListener("click", () => {
    const some = digits.map((_, i) => i).filter(() => Math.random() < few); // some come often, as in clients' data
    batch = Array.from({ length: 8 }, () => some[Math.floor(Math.random() * some.length)] ?? 0);
    change();
  });
  slider.addEventListener("input", show);
  figure.querySelectorAll("[hidden]").forEach((part) => part.removeAttribute("hidden"));
  stopAt[0](buttons[0]);
  change();
}

window.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".touch").forEach(begin));
