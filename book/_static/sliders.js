// A slider shows one of the drawings that the page holds; the arrow keys move it, and what it shows is said in words.
function start(figure) {
  const control = figure.querySelector(".control");
  const input = control.querySelector("input");
  const frames = [...figure.querySelectorAll(".frame")];
  const show = () => {
    frames.forEach((frame, i) => (frame.hidden = i !== Number(input.value)));
    const frame = frames[input.value];
    input.setAttribute("aria-valuetext", `${frame.dataset.at}: ${frame.querySelector("svg").getAttribute("aria-label")}`);
  };
  input.addEventListener("input", show);
  control.hidden = false;
  show();
}

window.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".slider").forEach(start));
