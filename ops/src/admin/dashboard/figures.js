// @ts-check
/** Numbers and small elements as the live page and the player page show them. */

/**
 * @param {number | null | undefined} value
 * @param {number} digits
 * @param {string} [unit]
 */
export const shown = (value, digits, unit) => (value == null ? "–" : value.toFixed(digits) + (unit ? ` ${unit}` : ""));

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** @param {number} count */
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toPrecision(3)} ${units[unit]}`;
}

/**
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${type.name} #${id}`);
  return found;
}

/**
 * @param {string} name
 * @param {string} className
 * @param {string | readonly (string | Node)[]} [content]
 */
export function make(name, className, content = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...(typeof content === "string" ? [content] : content));
  return made;
}

/**
 * Shows names with values in a `dl`. Elements stay while the names stay, so that a selection does too.
 * @param {HTMLElement} list
 * @param {readonly (readonly [string, string, string?])[]} rows name, value, class of the value
 */
export function define(list, rows) {
  const names = [...list.querySelectorAll("dt")];
  if (names.length !== rows.length || rows.some(([name], index) => names[index]?.textContent !== name)) {
    list.replaceChildren(...rows.map(([name]) => make("div", "", [make("dt", "", name), make("dd", "")])));
  }
  for (const [index, value] of [...list.querySelectorAll("dd")].entries()) {
    const [, text = "", className = ""] = rows[index] ?? [];
    if (value.textContent !== text) value.textContent = text;
    value.className = className;
  }
}
