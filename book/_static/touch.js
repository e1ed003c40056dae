// The attack to touch: a batch of digits, the row sums of its gradient (LLG's Eqs. 9 and 14), and Algorithm 1.
const CLASSES = 10;

// Row sums of the last layer's gradient: the mean over the batch of (softmax - one at the label) times the inputs' sum.
function rowSums(batch) {
  return Array.from({ length: CLASSES }, (_, i) =>
    batch.reduce((sum, one) => sum + ((one.p[i] - (one.label === i)) * one.mass) / batch.length, 0));
}

// The labels in the order in which LLG names them, each with the row sums that are left, and why it was named.
function llg(sums, samples) {
  const g = [...sums], named = [];
  const impact = ((1 + 1 / CLASSES) / samples) * g.reduce((sum, x) => sum + Math.min(x, 0), 0);
  const name = (label, why) => named.push({ label, why, left: ((g[label] -= impact), [...g]) });
  const order = [...g.keys()].sort((a, b) => g[a] - g[b]);
  for (const label of order.filter((label) => g[label] < 0)) name(label, "its sum is negative");
  while (named.length < samples) name(g.indexOf(Math.min(...g)), "its sum is the smallest");
  return named;
}

function counted(labels) {
  return Array.from({ length: CLASSES }, (_, i) => labels.filter((label) => label === i).length);
}

const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toPrecision(2);

// Bars: an outline for what was sent, filled what is left of it; below, the counts of the batch and of the server.
function draw(svg, sent, left, taken, truth, found) {
  const most = Math.max(...sent.map(Math.abs), ...left.map(Math.abs), 1e-9);
  const at = (i) => 98 + 36 * i, height = (y) => 76 - (66 * y) / most;
  const words = (x, y, text, anchor = "middle") => `<text x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;
  const bar = (kind, i, y) =>
    `<rect class="${kind}" x="${at(i) - 13}" width="26" y="${Math.min(height(y), 76)}" height="${Math.abs(height(y) - 76)}"/>`;
  const parts = ["class", "in the batch", "named"].map((name, k) => words(2, 172 + 22 * k, name, "start"));
  parts.push('<path class="axis" d="M80 76H440"/>', words(74, 81, "0", "end"));
  for (const y of [most, -most]) parts.push(words(74, height(y) + 5, signed(y), "end"));
  left.forEach((y, i) => {
    parts.push(bar(i === taken ? "hit" : y < 0 ? "miss" : "truth", i, y), bar("sent", i, sent[i]));
    [i, truth[i] || "·", found[i] || "·"].forEach((text, k) => parts.push(words(at(i), 172 + 22 * k, text)));
  });
  svg.innerHTML = parts.join("");
}

function begin(figure) {
  const { most, few, start, digits } = JSON.parse(figure.dataset.held);
  const [batchBox, svg, slider] = [".batch", "svg", "input"].map((name) => figure.querySelector(name));
  const [told, output] = [".told", "output"].map((name) => figure.querySelector(name));
  const buttons = [...figure.querySelectorAll(".choice button")];
  let batch = [...start], named = [], sums = [], opened = false;

  function show() {
    const step = Number(slider.value), last = named[step - 1];
    const labels = batch.map((i) => digits[i].label).sort();
    const truth = counted(labels), found = counted(named.slice(0, step).map((one) => one.label));
    draw(svg, sums, last ? last.left : sums, last?.label, truth, found);
    const right = truth.reduce((sum, n, i) => sum + Math.min(n, found[i]), 0);
    const guess = named.slice(0, step).map((one) => one.label).sort().join(", ");
    output.value = `${step} of ${named.length} named`;
    slider.setAttribute("aria-valuetext", output.value);
    told.textContent = !batch.length ? "The batch is empty: choose an image."
      : !step ? `${sums.filter((x) => x < 0).length} sums are negative: these labels are in the batch.`
      : step < named.length ? `Label ${last.label} is named, since ${last.why}; what one sample is worth is taken off its sum.`
      : `Named: ${guess}. In the batch: ${labels.join(", ")}. ${right} of ${labels.length} are right.`;
    svg.setAttribute("aria-label", "Row sums: " + (last ? last.left : sums).map((x, i) => `class ${i} ${signed(x)}`).join(", "));
  }

  function change() {
    sums = batch.length ? rowSums(batch.map((i) => digits[i])) : Array(CLASSES).fill(0);
    named = batch.length ? llg(sums, batch.length) : [];
    const all = slider.value === slider.max; // who has moved the slider to its end wants the answer at once
    slider.max = named.length;
    slider.value = opened && all ? named.length : 0;
    opened = true;
    batchBox.replaceChildren(...batch.map((i, place) => {
      const button = buttons[i].cloneNode(true);
      button.setAttribute("aria-label", `take out this ${digits[i].label}`);
      button.addEventListener("click", () => {
        batch.splice(place, 1);
        change();
        (batchBox.children[Math.min(place, batch.length - 1)] ?? buttons[i]).focus();
      });
      return button;
    }));
    buttons.forEach((button) => (button.disabled = batch.length >= most));
    show();
  }

  buttons.forEach((button, i) => button.addEventListener("click", () => (batch.push(i), change())));
  figure.querySelector(".clear").addEventListener("click", () => ((batch = []), change()));
  figure.querySelector(".random").addEventListener("click", () => {
    const some = digits.map((_, i) => i).filter(() => Math.random() < few); // some come often, as in clients' data
    batch = Array.from({ length: 8 }, () => some[Math.floor(Math.random() * some.length)] ?? 0);
    change();
  });
  slider.addEventListener("input", show);
  figure.querySelectorAll("[hidden]").forEach((part) => (part.hidden = false));
  change();
}

window.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".touch").forEach(begin));
