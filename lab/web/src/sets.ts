/** Several sets of results side by side, as of the simulator and of the emulator. */

export interface Named {
  /** The algorithm or flow. */
  readonly owner: string;
  readonly set: string | null;
}

/** `cubic (sim)`, where one of the sets is called `sim`. */
export function parted(name: string, sets: readonly string[]): Named {
  const set = sets.find((label) => name.endsWith(` (${label})`));
  return set === undefined ? { owner: name, set: null } : { owner: name.slice(0, -` (${set})`.length), set };
}
