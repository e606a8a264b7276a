/** Exit codes of the tools (sysexits.h where it has one). */
export const EXIT = { ok: 0, nothingPlayed: 3, usage: 64, failed: 70, interrupted: 130, terminated: 143 } as const;

/** A command line that cannot be obeyed. */
export class UsageError extends Error {}

/** Runs `main`; its errors become one line on standard error and the right exit code. */
export async function run(name: string, usage: string, main: () => Promise<number>): Promise<void> {
  try {
    process.exitCode = await main();
  } catch (error) {
    const usageError = error instanceof UsageError || (error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS"));
    const message = error instanceof Error ? error.message : String(error);
    process.stderr.write(`${name}: ${message}\n${usageError ? `${usage}\n` : ""}`);
    process.exitCode = usageError ? EXIT.usage : EXIT.failed;
  }
}
