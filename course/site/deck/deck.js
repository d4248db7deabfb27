// Arrow keys, space, Home, End, click or swipe; the slide's number stands in the address. Nothing is loaded.
const slides = [...document.querySelectorAll("section")];
const stage = document.getElementById("stage");
let shown = 0;

function show(number) {
  shown = Math.max(0, Math.min(slides.length - 1, number));
  slides.forEach((slide, index) => {
    slide.classList.toggle("current", index === shown);
    slide.setAttribute("aria-hidden", index !== shown);
  });
  document.getElementById("place").textContent = `${shown + 1} / ${slides.length}`;
  history.replaceState(null, "", `#${shown + 1}`);
}

// What is too tall for its slide is made smaller, never cut. The factor stands in data-scale; a test reads it.
function fit() {
  for (const slide of slides) {
    const room = slide.querySelector(".room"), body = slide.querySelector(".body");
    let scale = 1;
    body.style.transform = ""; body.style.width = "";
    const needed = () => Math.max(body.scrollHeight * scale / room.clientHeight, body.scrollWidth * scale / room.clientWidth);
    while (needed() > 1 && scale > 0.3) {
      scale -= 0.02;
      body.style.width = `${100 / scale}%`; // the lines may be longer then
      body.style.transform = `scale(${scale})`;
    }
    slide.dataset.scale = scale.toFixed(2);
  }
}

function resize() {
  const scale = Math.min(innerWidth / 1280, innerHeight / 720);
  stage.style.transform = `scale(${scale})`;
  stage.style.left = `${(innerWidth - 1280 * scale) / 2}px`;
  stage.style.top = `${(innerHeight - 720 * scale) / 2}px`;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
  if (event.key in steps) show(shown + steps[event.key]);
  else if (event.key === "Home") show(0);
  else if (event.key === "End") show(slides.length - 1);
  else return;
  event.preventDefault();
});
addEventListener("click", (event) => {
  if (!event.target.closest("a") && getSelection().isCollapsed) show(shown + (event.clientX < innerWidth / 3 ? -1 : 1));
});
let touched = 0;
addEventListener("touchstart", (event) => { touched = event.touches[0].clientX; });
addEventListener("touchend", (event) => {
  const moved = event.changedTouches[0].clientX - touched;
  if (Math.abs(moved) > 50) show(shown + (moved < 0 ? 1 : -1));
});
addEventListener("hashchange", () => show(Number(location.hash.slice(1)) - 1 || 0));
addEventListener("resize", resize);
resize();
show(Number(location.hash.slice(1)) - 1 || 0);
const typeset = window.MathJax?.startup?.promise ?? Promise.resolve();
typeset.then(() => document.fonts.ready).then(() => { fit(); document.body.dataset.ready = "true"; });
