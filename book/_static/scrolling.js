// What scrolls sideways can be reached with the keyboard: once it is too wide, it is a stop of the tab key, and pictures
// and tables say so.
const boxes = ".bd-article :is(pre, .text_html, .pst-scrollable-table-container, .wide-table, .math, .sd-card-body, figure, .frames)";

function markScrolling() {
  for (const box of document.querySelectorAll(boxes)) {
    const wider = box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "visible";
    if (wider) box.tabIndex = 0;
    box.classList.toggle("wider", wider);
  }
}

window.addEventListener("load", markScrolling);
window.addEventListener("resize", markScrolling);
