/** The data of the page; null in the page as it was built. */
export function pageData<T>(): T | null {
  const data = JSON.parse(document.getElementById("data")?.textContent ?? "null") as T | string | null;
  return typeof data === "string" ? null : data;
}
