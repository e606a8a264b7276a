/** What a built page has where its data belongs; `lab/src/report/mod.rs` has it too. */
const PLACE = '"millrace-report-data"';

/** The page with its data. */
export function fill(page: string, data: unknown): string {
  const [before, after, ...others] = page.split(PLACE);
  if (before === undefined || after === undefined || others.length > 0) throw new Error("the page has no place for its data: run `npm run build`");
  // A `<` could end the script that the data is in.
  return before + JSON.stringify(data).replaceAll("<", "\\u003c") + after;
}
