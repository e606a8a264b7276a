// @ts-check
/** The dialog that changes a connection's congestion control. Nothing changes before its last button. */
import { ask, json, TokenNeeded } from "./api.js";
import { element, make } from "./figures.js";

/** @typedef {import("./api.js").Flow} Flow */

/** Value of the option that returns the choice to the configuration or the rules. */
const RELEASE = "";

/** The dialog. */
export class ChangeDialog {
  #dialog = element("change", HTMLDialogElement);
  #select = element("change-to", HTMLSelectElement);
  #confirm = element("change-confirm", HTMLButtonElement);
  #wrong = element("change-wrong", HTMLElement);
  /** @type {Flow | null} */
  #flow = null;
  /** @type {readonly string[]} */
  #algorithms = [];

  constructor() {
    this.#select.addEventListener("change", () => this.#label());
    element("change-cancel", HTMLButtonElement).addEventListener("click", () => this.#dialog.close());
    this.#confirm.addEventListener("click", () => void this.#change());
  }

  /** @param {readonly string[]} algorithms what the admin API accepts */
  set algorithms(algorithms) {
    this.#algorithms = algorithms;
  }

  /** @param {Flow} flow */
  open(flow) {
    this.#flow = flow;
    this.#describe(flow, "flows, all of which change");
    void this.#countSharing(flow);
    const options = this.#algorithms.map((name) => new Option(name, name, false, name === flow.algorithm));
    if (flow.pinned) options.unshift(new Option("release: configuration and rules choose again", RELEASE));
    this.#select.replaceChildren(...options);
    this.#wrong.hidden = true;
    this.#label();
    this.#dialog.showModal();
  }

  /**
   * @param {Flow} flow
   * @param {string} carried
   */
  #describe(flow, carried) {
    element("change-about", HTMLElement).textContent =
      `Connection ${flow.connection ?? ""} carries ${carried}. Its algorithm is ${flow.algorithm ?? "not known"}. ` +
      "It applies to what this end sends, at once, and neither rules nor new flows change it until it is released.";
  }

  /**
   * The page does not have all flows of a large proxy.
   * @param {Flow} flow
   */
  async #countSharing(flow) {
    try {
      /** @type {import("./api.js").Flows} */
      const { matching } = await json(`flows?limit=0&filter=${flow.connection ?? ""}`);
      if (this.#flow === flow) this.#describe(flow, matching === 1 ? "this flow" : `${matching} flows, all of which change`);
    } catch {
      // The text without a number is true as well.
    }
  }

  #label() {
    const to = this.#select.value;
    this.#confirm.textContent = to === RELEASE ? "Release" : `Change to ${to}`;
    this.#confirm.disabled = to === this.#flow?.algorithm && this.#flow.pinned;
  }

  async #change() {
    const connection = this.#flow?.connection;
    if (!connection) return;
    const to = this.#select.value;
    const path = `congestion_control/${connection}`;
    this.#confirm.disabled = true;
    try {
      const answer = to === RELEASE ? await ask(path, "DELETE") : await ask(`${path}?algorithm=${encodeURIComponent(to)}`, "PUT");
      if (!answer.ok) throw new Error((await answer.text()).trim());
      /** @type {{ algorithm: string, pinned: boolean }} */
      const { algorithm, pinned } = await answer.json();
      const done = element("done", HTMLElement);
      done.replaceChildren(make("strong", "", algorithm), pinned ? ` now drives connection ${connection}, set by hand.` : ` drives connection ${connection}; configuration and rules choose again.`);
      done.hidden = false;
      this.#dialog.close();
    } catch (error) {
      this.#wrong.hidden = false;
      this.#wrong.textContent = error instanceof TokenNeeded ? "The admin listener did not accept the token. Close this and enter it again." : `Not changed: ${error instanceof Error ? error.message : String(error)}`;
      this.#confirm.disabled = false;
    }
  }
}
