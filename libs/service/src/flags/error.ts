/** A command line that cannot be used: one line that names the flag and says what to do. */
export class FlagError extends Error {
  override readonly name = 'FlagError';
  /** As it stands in the message: `--server-port`, or the argument that is no flag. */
  readonly flag: string;

  /** @param flag a flag's name without dashes, or what was written in its place */
  constructor(flag: string, problem: string) {
    const shown = /^[a-z]/.test(flag) ? `--${flag}` : flag;
    super(`${shown}: ${problem}`);
    this.flag = shown;
  }
}
