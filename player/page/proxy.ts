/** Asks a proxy what carries this session: at most once a second, one request at a time, less often while it does not answer. */
import { findSession, type Carried } from "../src/flows.ts";
import type { ProxyState } from "../src/messages.ts";

const EVERY_MS = 1000;
/** Each request that fails is a line in the browser's console, which a page cannot keep away. */
const RARELY_MS = 30_000;
const TIMEOUT_MS = 5000;
/** Some thousand flows. */
const ANSWER_MAX_BYTES = 4 * 1024 * 1024;

/** What was heard last. */
export interface Heard {
  /** `failed`: it did not answer, or not in a way that can be read. */
  readonly state: "asking" | "answered" | "failed";
  /** Null if it knows of no such session at the moment. */
  readonly carried: Carried | null;
  readonly algorithm: string | null;
  /** When the algorithm took another's place, on the clock of `performance.now`; null of the first. */
  readonly changed_ms: number | null;
}

export function stateOf({ state, carried }: Heard): ProxyState {
  if (state !== "answered") return state;
  if (carried === null) return "no_flow";
  return carried.algorithm === null ? "bypassed" : "carried";
}

async function ask(address: string): Promise<unknown> {
  const response = await fetch(address, { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok || !response.body) throw new Error(`${address}: ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    if (text.length > ANSWER_MAX_BYTES) {
      await reader.cancel();
      throw new Error(`${address}: more than ${ANSWER_MAX_BYTES} bytes`);
    }
  }
  return JSON.parse(text);
}

/** Asks `proxy` (an origin; empty: the page's own) from now on; what it said of the session holds for `hold_ms` where it says nothing of it; `onChange` hears of the first algorithm and of each that takes its place. */
export function watchProxy(proxy: string, session: string, hold_ms: number, onChange: (algorithm: string) => void): () => Heard {
  let heard: Heard = { state: "asking", carried: null, algorithm: null, changed_ms: null };
  let pause_ms = EVERY_MS;
  let found_ms = -Infinity;
  const round = async (): Promise<void> => {
    try {
      const found = findSession(await ask(`${proxy}/flows?session=${encodeURIComponent(session)}`), session);
      if (found !== null) found_ms = performance.now();
      const carried = found ?? (performance.now() - found_ms < hold_ms ? heard.carried : null);
      const algorithm = carried?.algorithm ?? heard.algorithm;
      const changed = algorithm !== null && algorithm !== heard.algorithm;
      heard = { state: "answered", carried, algorithm, changed_ms: changed && heard.algorithm !== null ? performance.now() : heard.changed_ms };
      pause_ms = EVERY_MS;
      if (changed) onChange(algorithm);
    } catch {
      heard = { ...heard, state: "failed", carried: null };
      pause_ms = Math.min(RARELY_MS, pause_ms * 2);
    }
    setTimeout(() => void round(), pause_ms);
  };
  void round();
  return () => heard;
}

/** A name that no other session has; `crypto.randomUUID` is for secure pages only. */
export const sessionName = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
