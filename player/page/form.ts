/** The form above the sessions. Loading is opening the page with another query string, so that each load starts clean and its address can be passed on. */
import { element } from "../../ops/src/admin/dashboard/figures.js";
import { ABR, CMCD, defaultMpd, MAX_SESSIONS, parseOptions, toQuery, type Options, type PageOptions } from "./options.ts";

interface Preset {
  readonly label: string;
  readonly mpd: string;
  readonly live: boolean;
}

/** Paths at the page's own origin, which is the way through the tunnel where the page came through it. */
const PRESETS: readonly Preset[] = [
  { label: "Big Buck Bunny of the lab (npm run media)", mpd: defaultMpd(false), live: false },
  { label: "Example origin of Compose", mpd: "/vod/manifest.mpd", live: false },
  { label: "Live stream (npm run live)", mpd: defaultMpd(true), live: true },
];
const OTHER = "another address";

const ABR_LABELS: Readonly<Record<Options["abr"], string>> = {
  throughput: "Throughput rule",
  bola: "BOLA (buffer)",
  dynamic: "Dynamic (dash.js's mix)",
  l2a: "L2A-LL (live)",
  lolp: "LoL+ (live)",
};
const CMCD_LABELS: Readonly<Record<Options["cmcd"], string>> = { query: "in the query", header: "in header fields", off: "off" };

/** A field's part of the form; names are those of the query string. */
class SessionFields {
  readonly set: HTMLFieldSetElement;

  constructor(template: HTMLTemplateElement, { mpd, abr, buffer_s, cmcd, cmsd, fastSwitch, live, latency_s }: Options) {
    const part = template.content.cloneNode(true) as DocumentFragment;
    this.set = part.querySelector("fieldset") as HTMLFieldSetElement;
    const preset = this.#select("preset");
    preset.append(...PRESETS.map(({ label }) => new Option(label)), new Option(OTHER));
    this.#select("abr").append(...ABR.map((name) => new Option(ABR_LABELS[name], name)));
    this.#select("cmcd").append(...CMCD.map((name) => new Option(CMCD_LABELS[name], name)));
    this.#input("mpd").value = mpd;
    this.#select("abr").value = abr;
    this.#input("buffer_s").value = String(buffer_s);
    this.#select("cmcd").value = cmcd;
    this.#input("cmsd").checked = cmsd;
    this.#input("fast_switch").checked = fastSwitch;
    this.#input("live").checked = live;
    this.#input("latency_s").value = latency_s === null ? "" : String(latency_s);
    preset.addEventListener("change", () => {
      const chosen = PRESETS.find(({ label }) => label === preset.value);
      if (chosen) {
        this.#input("mpd").value = chosen.mpd;
        this.#input("live").checked = chosen.live;
      } else {
        this.#input("mpd").focus();
        this.#input("mpd").select();
      }
      this.#followLive();
    });
    this.#input("mpd").addEventListener("input", () => this.#showPreset());
    this.#input("live").addEventListener("change", () => {
      this.#showPreset();
      this.#followLive();
    });
    this.#showPreset();
    this.#followLive();
  }

  #showPreset(): void {
    const [mpd, live] = [this.#input("mpd").value, this.#input("live").checked];
    this.#select("preset").value = PRESETS.find((preset) => preset.mpd === mpd && preset.live === live)?.label ?? OTHER;
  }

  #followLive(): void {
    this.#input("latency_s").disabled = !this.#input("live").checked;
  }

  /** What the fields say, as a query string says it. */
  get options(): Options {
    const query = new URLSearchParams();
    for (const name of ["mpd", "buffer_s"]) query.set(name, this.#input(name).value.trim());
    for (const name of ["abr", "cmcd"]) query.set(name, this.#select(name).value);
    for (const name of ["cmsd", "fast_switch", "live"]) query.set(name, this.#input(name).checked ? "on" : "off");
    const latency = this.#input("latency_s");
    if (!latency.disabled && latency.value.trim() !== "") query.set("latency_s", latency.value.trim());
    const [options] = parseOptions(query.toString()).sessions;
    if (!options) throw new Error("there is at least one session");
    return options;
  }

  number(number: number, of: number): void {
    (this.set.querySelector("legend") as HTMLElement).textContent = of > 1 ? `Session ${number}` : "Session";
    (this.set.querySelector(".remove") as HTMLElement).hidden = of === 1;
  }

  #input(name: string): HTMLInputElement {
    return this.set.querySelector(`input[name="${name}"]`) as HTMLInputElement;
  }

  #select(name: string): HTMLSelectElement {
    return this.set.querySelector(`select[name="${name}"]`) as HTMLSelectElement;
  }
}

/** Fills the form with `page` and shows it. */
export function openForm(page: PageOptions): void {
  const form = element("form", HTMLFormElement);
  const sets = element("form-sessions", HTMLElement);
  const template = element("form-template", HTMLTemplateElement);
  const add = element("add", HTMLButtonElement);
  const wrong = element("wrong", HTMLElement);
  const fields: SessionFields[] = [];
  const count = (): void => {
    for (const [index, set] of fields.entries()) set.number(index + 1, fields.length);
    add.disabled = fields.length >= MAX_SESSIONS;
  };
  const append = (options: Options): SessionFields => {
    const set = new SessionFields(template, options);
    fields.push(set);
    sets.append(set.set);
    (set.set.querySelector(".remove") as HTMLButtonElement).addEventListener("click", () => {
      fields.splice(fields.indexOf(set), 1);
      set.set.remove();
      count();
      add.focus();
    });
    count();
    return set;
  };
  for (const options of page.sessions) append(options);
  const attempt = (work: () => void): void => {
    try {
      work();
      wrong.hidden = true;
    } catch (error) {
      wrong.textContent = error instanceof Error ? error.message : String(error);
      wrong.hidden = false;
    }
  };
  add.addEventListener("click", () =>
    attempt(() => {
      const last = fields.at(-1);
      if (last && fields.length < MAX_SESSIONS) append(last.options).set.querySelector("select")?.focus();
    }),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => {
      const sessions = fields.map(({ options }) => options);
      // A proxy is asked about sessions that CMCD names.
      const proxy = sessions.every(({ cmcd }) => cmcd === "off") ? null : page.proxy;
      const query = toQuery({ ...page, sessions, proxy, autoplay: true });
      parseOptions(query);
      location.assign(`${location.pathname}${query}`);
    });
  });
  form.hidden = false;
}
