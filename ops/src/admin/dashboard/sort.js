// @ts-check
/** Order and filter of the rows of a table. */
import { make } from "./figures.js";

/**
 * @template T
 * @typedef {{ title: string, key: (row: T) => string | number | null }} Column
 */

/**
 * A row of buttons, one for each column. The first press of a column sorts by it, the next one turns the order round.
 * @template T
 * @param {HTMLTableElement} table
 * @param {readonly Column<T>[]} columns
 * @param {() => void} onChange
 * @returns {(rows: readonly T[]) => T[]} the rows in the order that was chosen; as they came before a choice
 */
export function sortable(table, columns, onChange) {
  /** @type {{ column: number, down: boolean } | null} */
  let order = null;
  const heads = columns.map(({ title }, column) => {
    const button = /** @type {HTMLButtonElement} */ (make("button", "sort", title));
    button.type = "button";
    const head = make("th", "", [button]);
    head.setAttribute("scope", "col");
    button.addEventListener("click", () => {
      // Figures begin with the largest, which is what is looked for.
      order = { column, down: order?.column === column ? !order.down : column > 1 };
      for (const [index, other] of heads.entries()) {
        if (index === column) other.setAttribute("aria-sort", order.down ? "descending" : "ascending");
        else other.removeAttribute("aria-sort");
      }
      onChange();
    });
    return head;
  });
  const head = table.createTHead().insertRow();
  head.append(...heads);
  return (rows) => {
    const chosen = order;
    const key = chosen && columns[chosen.column]?.key;
    if (!chosen || !key) return [...rows];
    const sign = chosen.down ? -1 : 1;
    return rows.toSorted((a, b) => compare(key(a), key(b), sign));
  };
}

/**
 * What is not known comes last in both orders.
 * @param {string | number | null} a
 * @param {string | number | null} b
 * @param {number} sign
 */
function compare(a, b, sign) {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
}

/**
 * Whether each word of the filter is somewhere in the texts.
 * @param {string} filter
 * @param {readonly (string | null)[]} texts
 */
export function matches(filter, texts) {
  const all = texts.join(" ").toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}
