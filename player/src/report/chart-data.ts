import type { Session } from "../schema.ts";

/** What the report's script draws. */
export interface ChartData {
  readonly variants: readonly { readonly label: string; readonly seconds: Session["seconds"] }[];
}
