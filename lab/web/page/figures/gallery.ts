/** What each viewer saw at one second, side by side with the source; the reader chooses the second. */
import type { Gallery, Seen, View } from "../../src/figures/document.ts";
import { figure, withUnit } from "../../src/format.ts";
import type { Styles } from "../../src/style.ts";
import { element } from "../dom.ts";
import { mark } from "../legend.ts";

/** Gives the controls of several galleries on one page names of their own. */
let made = 0;

export function gallery(of: Gallery, styles: Styles): HTMLElement {
  const id = `gallery-${made++}`;
  const places = [...new Set(of.views.map((v) => v.place))];
  const at = (place: string): readonly View[] => of.views.filter((v) => v.place === place);
  let views = at(places[0] ?? "");
  let index = Math.floor(views.length / 2);
  let asSource = false;

  const time = element("output", { for: `${id}-time` });
  const slider = element("input", { id: `${id}-time`, type: "range", min: "0", step: "1", "aria-label": "Second of the session" });
  const cards = element("div", { class: "cards" });
  const source = element("button", { type: "button", "aria-pressed": "false" }, "Source in place of what was seen");

  const show = (): void => {
    const view = views[index];
    if (view === undefined) return;
    slider.max = String(views.length - 1);
    slider.value = String(index);
    slider.disabled = views.length < 2;
    slider.setAttribute("aria-valuetext", `${figure(view.t)} seconds`);
    time.textContent = `${figure(view.t)} s`;
    cards.replaceChildren(sourceCard(of, view), ...view.seen.map((seen) => card(of, seen, styles, asSource)));
  };
  slider.addEventListener("input", () => {
    index = Number(slider.value);
    show();
  });
  source.addEventListener("click", () => {
    asSource = !asSource;
    source.setAttribute("aria-pressed", String(asSource));
    show();
  });
  const controls = element("div", { class: "controls" });
  if (places.length > 1) {
    const choice = element("select", { "aria-label": "Link" }, ...places.map((p) => element("option", { value: p }, p)));
    choice.addEventListener("change", () => {
      const t = views[index]?.t ?? 0;
      views = at(choice.value);
      // The nearest second with a view.
      index = views.reduce((best, v, i) => (Math.abs(v.t - t) < Math.abs((views[best]?.t ?? 0) - t) ? i : best), 0);
      show();
    });
    controls.append(choice);
  }
  controls.append(element("label", { for: `${id}-time` }, "Second"), time, slider, source);
  show();
  const caption = element("figcaption", {}, "What viewers saw at the same second of their sessions");
  const below = element("p", { class: "source" }, "Above the whole picture, below its middle at full size (1080p). PSNR is that of this frame against the source's that was due. ", of.credit ?? "");
  return element("figure", { class: "gallery" }, caption, controls, cards, below, ...of.notes.map((n) => element("p", { class: "source" }, n)));
}

function sourceCard(of: Gallery, view: View): HTMLElement {
  const first = view.seen.find((s) => s.source_part !== null);
  return element("div", { class: "card" }, element("div", { class: "name" }, "Source"), image(of, view.source, "whole", "The source's picture"), image(of, first?.source_part ?? null, "part", "The source's middle at full size"), element("div", { class: "said" }, first === undefined ? "" : `as due for ${first.name}`));
}

function card(of: Gallery, seen: Seen, styles: Styles, asSource: boolean): HTMLElement {
  const name = element("div", { class: "name" }, mark(seen.name, styles), seen.name);
  if (seen.frozen_s > 0) name.append(element("span", { class: "badge fails" }, `frozen for ${figure(seen.frozen_s)} s`));
  else if (seen.media_s === null) name.append(element("span", { class: "badge none" }, "nothing yet"));
  const said = [seen.rung_kbps === null ? null : withUnit(seen.rung_kbps, "kbit/s"), seen.psnr_db === null ? null : withUnit(seen.psnr_db, "dB"), seen.buffer_s === null ? null : `${withUnit(seen.buffer_s, "s")} in the buffer`];
  const part = asSource ? image(of, seen.source_part, "part", `The source's middle that was due for ${seen.name}`) : image(of, seen.part, "part", `Its middle at full size with ${seen.name}`);
  return element("div", { class: seen.frozen_s > 0 ? "card frozen" : "card" }, name, image(of, seen.whole, "whole", `The picture with ${seen.name}`), part, element("div", { class: "said" }, said.filter((s) => s !== null).join(" · ")));
}

/** A picture, or a placeholder of its size. */
function image(of: Gallery, index: number | null, kind: "whole" | "part", alt: string): HTMLElement {
  const src = index === null ? undefined : of.images[index];
  return src === undefined ? element("div", { class: `${kind} nothing` }) : element("img", { class: kind, src, alt, width: "480", height: "270" });
}
