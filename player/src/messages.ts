/** What happened, in words for viewers, and what to do about it. Pure: no clock, no I/O. */

/** By dash.js's number of an error. */
const ADVICE: readonly (readonly [readonly number[], string])[] = [
  [[10, 31, 32, 34], "The manifest is not one that dash.js can play. Check that the address is that of a DASH manifest (.mpd)."],
  [[11, 25], "The manifest could not be loaded. Check its address, that the origin runs, and that it allows this page (CORS) if it is another host."],
  [[17, 27, 28, 26], "A segment could not be loaded. The manifest is there: check that the origin has the media beside it, and that the tunnel is up (/healthz of the client)."],
  [[20, 22], "The browser refused a segment. The files may be damaged, or of a codec that it does not have."],
  [[23, 35], "This browser cannot play the codecs of this presentation."],
  [[16], "The clock of the live stream could not be read. Check that the live origin runs."],
];

/** Of an error as the collector has it, `dash.js CODE: message`. */
export function explainError(error: string): string {
  const code = Number(/^dash\.js (\d+):/.exec(error)?.[1] ?? NaN);
  const advice = ADVICE.find(([codes]) => codes.includes(code))?.[1];
  if (advice) return `${advice} (${error})`;
  if (error.includes("autoplay")) return "The browser does not start videos by itself here. Press Play.";
  return `The player stopped: ${error}.`;
}

/** `answered`: with or without a flow of the session. */
export type ProxyState = "asking" | "no_flow" | "failed" | "bypassed" | "carried";

/** One line for the figures; the algorithm itself where it is known. */
export const PROXY_WORDS: Readonly<Record<Exclude<ProxyState, "carried">, string>> = {
  asking: "asking",
  no_flow: "no flow of this session",
  failed: "no answer",
  bypassed: "bypassed",
};

/** The page's own origin is passed on to the proxy by the server of the page. */
export function explainProxy(state: ProxyState, proxy: string, page: string): string | null {
  switch (state) {
    case "no_flow":
      return (
        "No flow of this session: the proxy answers, but carries no flow whose player names this session. Either the video does not come through this proxy's tunnel (open this page, or the manifest, at the client's " +
        "address), or the flow is encrypted or not of class dash, so that its reports (CMCD) cannot be read, or one of several servers was asked that does not carry it."
      );
    case "failed":
      return proxy === ""
        ? "No answer of the proxy: the server of this page could not ask the proxy's admin listener. Check that the proxy runs. The video is not affected."
        : `No answer of the proxy: ${proxy} is down, or does not let this page read /flows. Check that it runs, and that admin.cors_allow_origins lists ${page}. The video is not affected.`;
    case "bypassed":
      return "This session bypasses the tunnel: the client reaches no server, and its listener has fail_mode = \"open\". No algorithm of the tunnel is in use.";
    case "asking":
    case "carried":
      return null;
  }
}
